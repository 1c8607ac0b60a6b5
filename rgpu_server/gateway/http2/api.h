// Calls of the API that come to a `grpc:` port. The gateway passes them to the daemon unread.
#pragma once

#include <cstdint>
#include <memory>

#include "rgpu_server/gateway/http2/call.h"

namespace rgpu::gateway::http2 {

class UpstreamCall;

// The client's half of a call of the API.
class ApiCall final : public Call {
 public:
  ApiCall(Carrier& carrier, uint64_t place, Fields request);

  void OnData(const uint8_t* data, size_t bytes) override;
  void OnEnd() override;
  void OnSent() override;

  // Sends bytes of the daemon's answer to the client.
  void Answer(const uint8_t* data, size_t bytes);
  // The daemon's half has sent this many bytes of the request.
  void Taken(size_t bytes);
  // The daemon's half has ended. Ends the call unless it has a status.
  void LeftAlone();

 private:
  uint64_t NextDue() const override;
  void Look(uint64_t now) override;
  void GiveBack() override;

  const Fields request_;
  UpstreamCall* upstream_ = nullptr;
  uint64_t due_ns_;
  bool any_ = false;
};

// The daemon's half of a call.
class UpstreamCall final : public Stream {
 public:
  UpstreamCall(Session* session, ApiCall* call) : session_(session), call_(call) {}

  // Sends bytes of the request to the daemon.
  void Say(const uint8_t* data, size_t bytes);
  void EndRequest();
  // All bytes of the answer so far have gone to the client.
  void TakenAll();
  // The client's half has ended. Cancels the call at the daemon.
  void GiveUp();

  void OnFields(const Fields& fields, bool last) override;
  void OnData(const uint8_t* data, size_t bytes) override;
  void OnEnd() override {}
  void OnSent() override;
  void OnClosed(uint32_t error_code) override;

 private:
  Session* const session_;
  ApiCall* call_;  // null once the client's half has ended
  size_t untaken_ = 0;
  size_t unsent_ = 0;
};

// A connection to the daemon's API. Each connection of a client has one, so the daemon knows the
// client of every call.
class Upstream final : public Session::Owner {
 public:
  // Returns null if the daemon takes no connection.
  static std::unique_ptr<Upstream> Open(House& house, const wire::Preface& preface);
  ~Upstream() { session_.Close(); }

  // Returns null if this connection takes no more calls.
  UpstreamCall* Begin(const Fields& request, ApiCall* call);
  int fd() const { return connection_->descriptor(); }
  short events() const;
  // Reads once. Returns false if the connection has ended.
  bool Receive(uint8_t* buffer, size_t bytes);
  bool Send() { return session_.Send(connection_.get()); }

 private:
  Upstream(const lib::Api& api, std::unique_ptr<transport::Connection> connection);
  std::unique_ptr<Stream> OnRequest(int32_t, const Fields&) override { return nullptr; }
  // The daemon is trusted not to flood the gateway.
  bool OnFrame(const lib::FrameHead&, bool) override { return true; }

  const std::unique_ptr<transport::Connection> connection_;
  Session session_;
};

}  // namespace rgpu::gateway::http2
