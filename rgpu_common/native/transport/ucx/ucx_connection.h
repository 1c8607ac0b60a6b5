// A connection over UCX, for the client's or the server's end: a UCP stream with rgpu's own flow
// control.
//
// It uses UCP's stream interface and not active messages, because only streams keep their order
// over any number of UCX lanes. UCX stores received bytes without a bound until they are requested,
// and its streams have no end. So records travel on the stream: a head of eight bytes (kind,
// value), and for data `value` bytes after it. A sender never sends more data than the receiver has
// room for.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "rgpu_common/native/base/fd.h"
#include "rgpu_common/native/transport/transport.h"
#include "rgpu_common/native/transport/ucx/ucp.h"

namespace rgpu::transport::ucx {

class UcxConnection final : public Connection {
 public:
  // With `guarded`, memory of a send or a receive that is not accessible gives kFault. Null: `*why`
  // says why UCX cannot make a connection.
  static std::unique_ptr<UcxConnection> Make(const Engine& engine, bool guarded, std::string* why);
  ~UcxConnection() override;

  // Call one of them, once: Reach connects to a listener, and Take accepts a listener's request.
  bool Reach(const sockaddr* address, socklen_t bytes);
  bool Take(ConnRequest* request);
  // Blocks until both ends have received the other's greeting. False: status() is the reason, or 0
  // if the time has passed.
  bool Agree(int timeout_ms);
  bool agreed() const { return agreed_; }
  Status status() const { return status_; }

  IoResult TrySend(const iovec* parts, int count) override;
  IoResult TryRecv(void* to, size_t bytes) override;
  int Wait(int events, int timeout_ms) override;
  void Wake() override;
  void EndSending() override;
  void Shutdown() override;
  void Abandon() override;
  std::string LostReason() const override;
  const char* kind() const override { return "ucx"; }

 private:
  static constexpr size_t kRingBytes = 2U << 20;
  static constexpr size_t kSlotBytes = 256U << 10;
  static constexpr size_t kSlots = 4;
  enum class Kind : uint32_t {
    kHello = 0x52475501,  // value: how many unread bytes this end can hold
    kData = 1,            // value: number of bytes that follow
    kCredit = 2,          // value: number of bytes that were read
    kEnd = 3,             // this end sends no more data
    kBye = 4,             // this end neither sends nor reads any more
  };
  struct Head {
    uint32_t kind;
    uint32_t value;
  };
  // Memory from which UCX sends. It is busy until UCX has completed the send.
  struct Slot {
    UcxConnection* owner = nullptr;
    bool busy = false;
    Head head{};
    std::unique_ptr<uint8_t[]> data;  // head and bytes of a data record
  };

  UcxConnection(const Engine& engine, bool guarded);
  static void OnError(void* self, Endpoint*, Status status);
  static void OnSent(void* request, Status status, void* slot);
  static void OnReceived(void* request, Status status, size_t bytes, void* self);

  // The functions below need mutex_, because only one thread at a time may call UCX.
  bool Create(EndpointParams* params);
  void Greet();
  void Progress();
  void Receive();
  void Took(size_t bytes);
  void Understand(const Head& head);
  void Send(Slot* slot, const void* data, size_t bytes);
  void Say(Slot* slot, Kind kind, size_t value);
  void GiveCredit();
  void Lose(Status status, const char* reason = "");
  Slot* FreeSlot();
  // Copies bytes of the parts to `to`. -1: the first bytes cannot be read.
  ssize_t Gather(uint8_t* to, size_t room, const iovec* parts, int count) const;
  IoResult CopyOut(uint8_t* to, size_t bytes);
  IoResult Gone() const;
  int Ready(int events) const;
  bool Sending() const;
  // Makes UCX's descriptor readable at the next event. False: an event has already happened.
  bool Arm();
  void Drain(int events);
  // Called at the end of each function: wakes the sleeping threads whose events now hold.
  void Settle();

  int Sleep(int events, int timeout_ms);
  void Turn(int timeout_ms);
  // Waits until UCX has sent all bytes, or the time is up.
  void Flush(int timeout_ms);
  bool Finish(void* request, int timeout_ms);
  void Close();

  const Engine& engine_;
  const Api& api_;
  const bool guarded_;
  mutable std::mutex mutex_;
  Worker* worker_ = nullptr;
  Endpoint* endpoint_ = nullptr;
  int events_ = -1;  // UCX's own descriptor
  base::UniqueFd wake_;
  std::array<base::UniqueFd, 3> notices_;  // wake threads that wait to read, to write, for the end
  std::array<bool, 3> noted_{};
  int sleepers_ = 0;

  std::array<Slot, kSlots> slots_;
  Slot greeting_, credit_, end_, bye_;
  size_t room_ = 0;  // bytes that the peer still has room for
  bool ended_ = false;

  std::unique_ptr<uint8_t[]> ring_;
  size_t begin_ = 0;
  size_t held_ = 0;
  size_t owed_ = 0;  // bytes that were read, for which the peer has got no credit yet
  Head head_{};
  size_t head_got_ = 0;
  size_t body_left_ = 0;
  bool receiving_ = false;
  bool peer_ended_ = false;
  bool peer_left_ = false;

  bool lost_ = false;
  std::atomic<Status> status_{kOk};
  std::string reason_;
  std::atomic<bool> agreed_{false};
  std::atomic<bool> closed_{false};
  bool abandoned_ = false;
};

// Connects a client to `ucx:` + address.
std::unique_ptr<Connection> ConnectUcx(const std::string& address, const ConnectOptions& options,
                                       ConnectError* why);

}  // namespace rgpu::transport::ucx
