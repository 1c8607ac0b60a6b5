// One end of an HTTP/2 connection. nghttp2 does the protocol, its limits and HPACK.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rgpu_common/native/transport/transport.h"
#include "rgpu_server/gateway/http2/body.h"
#include "rgpu_server/gateway/http2/nghttp2.h"

namespace rgpu::gateway::http2 {

using Fields = std::vector<std::pair<std::string, std::string>>;

// The most streams that a peer may have open.
inline constexpr uint32_t kMaxStreams = 1024;
// The window of every stream: the most bytes that the gateway keeps of it before they are consumed.
inline constexpr int32_t kStreamWindow = 65535;
inline constexpr size_t kMaxHeaderBytes = 16U << 10;

// Returns the value of a field, "" if there is no such field.
std::string_view Value(const Fields& fields, std::string_view name);

// One stream. Its Session owns it, and destroys it after OnClosed.
class Stream {
 public:
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  int32_t id() const { return id_; }
  // The peer has ended its direction.
  bool heard_all() const { return heard_all_; }

  // Client: fields of the answer, or its trailers (`last`).
  virtual void OnFields(const Fields& /*fields*/, bool /*last*/) {}
  // Takes data that is valid only during the call. The peer's window stays smaller by these bytes
  // until Session::Consume.
  virtual void OnData(const uint8_t* data, size_t bytes) = 0;
  // The peer has ended its direction.
  virtual void OnEnd() = 0;
  // All bytes of `out_` have been sent.
  virtual void OnSent() {}
  virtual void OnClosed(uint32_t error_code) = 0;

 protected:
  Stream() = default;

  // Bytes to send. Session::Resume starts sending, as far as the peer's windows allow.
  Body out_;
  // True: no bytes follow those in `out_`, only the trailers, if there are any.
  bool out_ends_ = false;
  Fields trailers_;

 private:
  friend class Session;
  int32_t id_ = 0;
  bool heard_all_ = false;
};

class Session {
 public:
  // Decides about requests and frames.
  class Owner {
   public:
    // Server: a request came. Returns its stream, null if the owner has answered or reset it.
    virtual std::unique_ptr<Stream> OnRequest(int32_t id, const Fields& fields) = 0;
    // The head of a frame came. Return false to fail the session because the peer floods it.
    virtual bool OnFrame(const lib::FrameHead& head, bool known_stream) = 0;

   protected:
    ~Owner() = default;
  };

  enum class Role : uint8_t { kServer, kClient };

  Session(const lib::Api& api, Role role, Owner* owner);
  ~Session();

  // Ends all streams, because the connection has ended.
  void Close();

  // Takes received bytes. Returns false if the session has failed: `why` is the reason, and Send
  // sends the GOAWAY.
  bool Receive(const uint8_t* data, size_t bytes);
  const std::string& why() const { return why_; }
  // Fails the session with this error code. Returns the value with which a callback of nghttp2
  // reports that.
  int Fail(uint32_t error_code, const char* why);
  // Sends as much as the connection takes now. Returns false if the connection is lost.
  bool Send(transport::Connection* to);
  // True if the connection did not take all bytes: call Send again when it is writable.
  bool blocked() const { return !unsent_.empty(); }
  bool failed() const { return failed_; }
  bool over() const;
  bool begun() const { return begun_; }

  size_t streams() const { return streams_.size(); }
  Stream* Find(int32_t id) const;
  template <typename Function>
  void ForEach(Function function) const {
    for (const auto& [id, stream] : streams_) function(*stream);
  }

  // Client: begins a stream with a request. Returns false if the session takes no more.
  bool Request(const Fields& fields, std::unique_ptr<Stream> stream);
  // Server: sends the first fields of an answer. Its data is the stream's `out_`.
  void Answer(Stream* stream, const Fields& fields);
  // Server: sends an answer without data, to a stream that has no answer yet.
  void AnswerAtOnce(int32_t id, const Fields& fields);
  // Call it after `out_` got bytes, or `out_ends_` was set.
  void Resume(const Stream& stream);
  // Gives the peer this much of the stream's window back.
  void Consume(const Stream& stream, size_t bytes);
  void SetWindow(const Stream& stream, int32_t bytes);
  void Reset(int32_t id, uint32_t error_code);
  void Ping();
  // Takes no new streams. Open streams go on.
  void Leave();
  // Sends GOAWAY, and ends all streams.
  void Terminate(uint32_t error_code);

 private:
  struct Callbacks;

  void Greet();
  void HeadersCame(int32_t id, bool last);
  std::vector<lib::NameValue> Names(const Fields& fields) const;
  lib::Provider ProviderOf(Stream* stream) const;
  bool SendUnsent();
  bool SendParts(const iovec* parts, int count);

  const lib::Api& api_;
  Owner* const owner_;
  const bool serves_;
  lib::Session* session_ = nullptr;
  std::unordered_map<int32_t, std::unique_ptr<Stream>> streams_;
  // The fields of the header block that is being received.
  Fields fields_;
  size_t field_bytes_ = 0;
  bool begun_ = false;
  bool failed_ = false;
  bool lost_ = false;
  std::string why_;
  // The connection, during Send.
  transport::Connection* to_ = nullptr;
  // Bytes of frames that nghttp2 has handed over and the connection did not take.
  std::string unsent_;
  size_t unsent_at_ = 0;
};

}  // namespace rgpu::gateway::http2
