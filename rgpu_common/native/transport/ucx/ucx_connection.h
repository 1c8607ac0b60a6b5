// A connection over UCX, for either end: a UCP stream with windows of its own.
//
// The stream interface and not active messages: it is the one whose order UCX promises, over any
// number of lanes, and what a Connection carries is a stream.  UCX keeps what nobody has asked for
// in memory without a bound and knows no end of a stream, so records go over it: a head of eight
// bytes (kind, value), and for data so many bytes.  No more data is on its way than the receiver
// has room for.
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
  // guarded: the memory that is sent from and received into is perhaps not there, which is then
  // kFault.  Null: `why` UCX cannot do it.
  static std::unique_ptr<UcxConnection> Make(const Engine& engine, bool guarded, std::string* why);
  ~UcxConnection() override;

  // One of them, once: towards a listener, or with who came to one.
  bool Reach(const sockaddr* address, socklen_t bytes);
  bool Take(ConnRequest* request);
  // Blocks until the two ends have greeted each other.  False: status() says why, 0 for the time.
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
    kHello = 0x52475501,  // value: what the sender of it takes unread
    kData = 1,            // value: bytes that follow
    kCredit = 2,          // value: bytes that were read
    kEnd = 3,             // no more data
    kBye = 4,             // nor is any read
  };
  struct Head {
    uint32_t kind;
    uint32_t value;
  };
  // What UCX is sending.  It is given back when UCX has let go of it.
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

  // What follows needs mutex_: one thread at a time is in UCX.
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
  // -1: a part cannot be read, and nothing comes before it.
  ssize_t Gather(uint8_t* to, size_t room, const iovec* parts, int count) const;
  IoResult CopyOut(uint8_t* to, size_t bytes);
  IoResult Gone() const;
  int Ready(int events) const;
  bool Sending() const;
  // Sleepers' descriptor tells of what happens from now on.  False: something has happened.
  bool Arm();
  void Drain(int events);
  // At the end of each verb: who sleeps learns what this thread's turn in UCX has brought.
  void Settle();

  int Sleep(int events, int timeout_ms);
  void Turn(int timeout_ms);
  // Until UCX holds nothing more, or the time is up.
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
  std::array<base::UniqueFd, 3> notices_;  // for who waits to read, to write, and for the end
  std::array<bool, 3> noted_{};
  int sleepers_ = 0;

  std::array<Slot, kSlots> slots_;
  Slot greeting_, credit_, end_, bye_;
  size_t room_ = 0;  // bytes that the peer still takes
  bool ended_ = false;

  std::unique_ptr<uint8_t[]> ring_;
  size_t begin_ = 0;
  size_t held_ = 0;
  size_t owed_ = 0;  // bytes that were read, and the peer does not know it
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

// `ucx:` + address, the client's end.
std::unique_ptr<Connection> ConnectUcx(const std::string& address, const ConnectOptions& options,
                                       ConnectError* why);

}  // namespace rgpu::transport::ucx
