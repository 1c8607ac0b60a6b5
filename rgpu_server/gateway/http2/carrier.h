// One client's connection to the gateway of `grpc:`, and the calls on it. One thread runs all of
// it.
#pragma once

#include <poll.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gen/handshake.gen.h"
#include "rgpu_common/native/transport/transport.h"
#include "rgpu_server/gateway/http2/allowance.h"
#include "rgpu_server/gateway/http2/api.h"
#include "rgpu_server/gateway/http2/call.h"
#include "rgpu_server/gateway/http2/house.h"
#include "rgpu_server/gateway/http2/session.h"

namespace rgpu::gateway::http2 {

class Carrier final : private Session::Owner {
 public:
  // known: called with true when the first call is admitted, and with false when no admitted call
  // is left.
  Carrier(House& house, transport::Connection& client, const wire::Preface& preface,
          std::shared_ptr<Waker> waker, const std::function<void(bool)>& known);
  ~Carrier();

  // Runs until the connection has ended.
  void Run();

  // For calls.
  Session& session() { return session_; }
  House& house() { return house_; }
  const wire::Preface& preface() const { return preface_; }
  // Changes the number of admitted calls.
  void Admitted(int count);
  // Begins the daemon's half of a call of the API. Returns null if the daemon does not answer.
  UpstreamCall* BeginUpstream(const Fields& request, ApiCall* call);

 private:
  std::unique_ptr<Stream> OnRequest(int32_t id, const Fields& fields) override;
  bool OnFrame(const lib::FrameHead& head, bool known_stream) override;

  // Does what is due, then waits once. Returns false if the connection has ended.
  bool Turn();
  bool Flush();
  bool Listen(uint64_t now);
  bool Receive();
  bool ChargeForSilence();
  bool CheckLife(uint64_t now);
  void Leave();
  void SendAway();
  void HearCalls();
  void HearUpstream(const pollfd& ready);
  uint64_t Due() const;
  void SayLastWords();

  House& house_;
  transport::Connection& client_;
  const wire::Preface& preface_;
  const std::shared_ptr<Waker> waker_;
  const std::function<void(bool)>& known_;
  const std::string network_;
  const bool sees_less_;  // TLS may hold input that poll(2) does not report
  const std::unique_ptr<uint8_t[]> buffer_;
  // Outlives the session, whose calls refer to it.
  std::unique_ptr<Upstream> upstream_;
  uint64_t now_ns_;
  Allowance allowance_;
  // Bytes received, minus the bytes of the frames that OnFrame was called for.
  int64_t silent_bytes_ = 0;
  Session session_;
  std::vector<pollfd> waits_;
  std::vector<int32_t> waiting_;  // the streams that the entries of `waits_` belong to
  bool more_ = false;             // TLS may hold more input
  bool leaving_ = false;
  int admitted_ = 0;
  uint64_t began_ns_;
  uint64_t heard_ns_;
  uint64_t asked_ns_ = 0;
  uint64_t idle_ns_;
};

}  // namespace rgpu::gateway::http2
