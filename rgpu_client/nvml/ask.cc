#include "rgpu_client/nvml/ask.h"

#include <errno.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "rgpu_common/native/transport/frame_io.h"
#include "rgpu_common/native/transport/transport.h"
#include "rgpu_common/native/wire/text.h"

namespace rgpu::nvml {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kVersionMismatch = 803;  // CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
constexpr int kUnknown = 999;          // CUDA_ERROR_UNKNOWN
constexpr size_t kBufferBytes = 32U << 10;

// A thread that is cancelled while it waits would keep the lock of its device.
class NoCancel {
 public:
  NoCancel() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NoCancel() { pthread_setcancelstate(before_, nullptr); }
  NoCancel(const NoCancel&) = delete;
  NoCancel& operator=(const NoCancel&) = delete;

 private:
  int before_ = 0;
};

class Deadline {
 public:
  explicit Deadline(int ms) : end_(Clock::now() + std::chrono::milliseconds(ms)) {}
  int left_ms() const {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end_ - Clock::now());
    return std::max(static_cast<int>(left.count()), 0);
  }

 private:
  Clock::time_point end_;
};

Answer Failed(nvmlReturn_t status, std::string sentence) {
  return {status, std::move(sentence), nullptr};
}

wire::Observe Question(const shim::Settings& settings) {
  wire::Observe question;
  question.access_token = settings.access_token;
  question.lease_key = wire::CleanText(settings.lease_key, wire::kMaxNameBytes);
  question.tenant = wire::CleanText(settings.tenant, wire::kMaxNameBytes);
  question.container = wire::CleanText(settings.container, wire::kMaxNameBytes);
  question.device = settings.device;
  question.memory_bytes = settings.memory.bytes;
  question.memory_ppm = settings.memory.ppm;
  return question;
}

bool Send(transport::Connection& connection, const wire::Observe& question, int timeout_ms) {
  return transport::SendHandshake(connection, wire::Handshake::kObserve, question, timeout_ms);
}

Answer Refusal(const wire::FrameHeader& header, const wire::Refused& refused) {
  switch (header.status) {
    case kVersionMismatch:
      return Failed(NVML_ERROR_LIB_RM_VERSION_MISMATCH, refused.sentence);
    case kUnknown:
      return Failed(NVML_ERROR_UNKNOWN, refused.sentence);
    default:
      return Failed(NVML_ERROR_NO_PERMISSION, refused.sentence);
  }
}

// Connects to the server's address, or else to the first of its other paths.
std::unique_ptr<transport::Connection> Connect(const shim::Settings& settings,
                                               const Deadline& deadline, Answer* failed) {
  std::vector<std::string> uris{settings.server};
  uris.insert(uris.end(), settings.paths.begin(), settings.paths.end());
  for (const std::string& uri : uris) {
    const int left = deadline.left_ms();
    if (left == 0) break;
    transport::ConnectOptions options;
    options.timeout_ms = left;
    transport::ConnectError why;
    auto connection = transport::Connect(uri, options, &why);
    if (connection != nullptr) return connection;
    if (failed->status != NVML_SUCCESS) continue;
    const bool late = why.error == ETIMEDOUT;
    *failed = Failed(late ? NVML_ERROR_TIMEOUT : NVML_ERROR_GPU_IS_LOST, why.sentence);
  }
  return nullptr;
}

Answer Lost(const shim::Settings& settings, transport::ReadState state) {
  const std::string server = "the server at " + settings.server;
  if (state == transport::ReadState::kTimeout) {
    return Failed(NVML_ERROR_TIMEOUT, server + " does not answer" + shim::kSilentRemedy);
  }
  return Failed(NVML_ERROR_GPU_IS_LOST, server + " ended the connection; see its log");
}

}  // namespace

Answer Ask(const shim::Settings& settings, int deadline_ms) {
  const NoCancel guard;
  const Deadline deadline(deadline_ms);
  Answer answer;
  const auto connection = Connect(settings, deadline, &answer);
  if (connection == nullptr) return answer;
  if (!Send(*connection, Question(settings), deadline.left_ms())) {
    return Lost(settings, transport::ReadState::kClosed);
  }
  transport::FrameReader reader(connection.get(), kBufferBytes);
  wire::FrameHeader header;
  wire::ByteView head;
  const auto state = reader.Next(&header, &head, deadline.left_ms());
  if (state != transport::ReadState::kFrame) return Lost(settings, state);
  wire::Reader fields(head.data, head.size);
  const bool handshake = header.kind == wire::Kind::kHandshake;
  wire::Refused refused;
  if (handshake && header.opcode == static_cast<uint16_t>(wire::Handshake::kRefused) &&
      Get(fields, &refused)) {
    return Refusal(header, refused);
  }
  auto observed = std::make_shared<wire::Observed>();
  if (handshake && header.opcode == static_cast<uint16_t>(wire::Handshake::kObserved) &&
      Get(fields, observed.get())) {
    answer = Answer{};
    answer.observed = std::move(observed);
    return answer;
  }
  return Failed(NVML_ERROR_LIB_RM_VERSION_MISMATCH,
                "the server at " + settings.server +
                    " answers in a way this release does not know; install the same release on "
                    "both sides");
}

}  // namespace rgpu::nvml
