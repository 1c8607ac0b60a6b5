// A client of the gateway of grpc:, on a session whose calls answer what they are told.  The input
// is what the client says after its first words; the first byte says in pieces of which size.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/memory_connection.h"
#include "rgpu_server/gateway/http2/grpc.h"
#include "rgpu_server/gateway/http2/session.h"

namespace {

namespace http2 = rgpu::gateway::http2;

// The client's preface, SETTINGS without a value, and the acknowledgement of ours.
constexpr std::string_view kHello(
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0\0\0\0\4\1\0\0\0\0", 42);

class Echo final : public http2::Stream {
 public:
  explicit Echo(http2::Session** session) : session_(session) {}

  void OnData(const uint8_t* data, size_t bytes) override {
    out_.Add(data, bytes);
    Say();
    (*session_)->Consume(*this, bytes);
  }
  void OnEnd() override {
    out_ends_ = true;
    trailers_ = http2::Trailers({http2::Code::kOk, "100 %"});
    Say();
  }
  void OnClosed(uint32_t) override {}

 private:
  void Say() {
    if (!answered_) (*session_)->Answer(this, http2::AnswerFields());
    answered_ = true;
    (*session_)->Resume(*this);
  }

  http2::Session** const session_;
  bool answered_ = false;
};

struct Owner final : http2::Session::Owner {
  std::unique_ptr<http2::Stream> OnRequest(int32_t id, const http2::Fields& fields) override {
    static_cast<void>(http2::TimeoutNs(http2::Value(fields, "grpc-timeout")));
    if (const http2::Fields answer = http2::NoGrpc(fields); !answer.empty()) {
      session->AnswerAtOnce(id, answer);
      return nullptr;
    }
    return std::make_unique<Echo>(&session);
  }
  bool OnFrame(const http2::lib::FrameHead&, bool) override { return ++frames < kMostFrames; }

  static constexpr int kMostFrames = 1000;

  http2::Session* session = nullptr;
  int frames = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string why;
  const http2::lib::Api* api = http2::lib::Load(&why);
  if (api == nullptr) std::abort();
  if (size == 0) return 0;
  Owner owner;
  http2::Session session(*api, http2::Session::Role::kServer, &owner);
  owner.session = &session;
  rgpu::fuzz::MemoryConnection connection(nullptr, 0, 1);
  const auto* hello = reinterpret_cast<const uint8_t*>(kHello.data());
  if (!session.Receive(hello, kHello.size())) std::abort();
  const size_t piece = 1 + data[0];
  for (size_t at = 1; at < size; at += piece) {
    // Memory of its own: the sanitizer sees what is touched outside of it.
    const std::vector<uint8_t> came(data + at, data + std::min(size, at + piece));
    if (!session.Receive(came.data(), came.size()) || !session.Send(&connection)) break;
  }
  if (session.streams() > http2::kMaxStreams) std::abort();
  session.Send(&connection);
  session.Close();
  return 0;
}
