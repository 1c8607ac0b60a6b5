// Lane: one ordered stream of bytes over links that may break and be replaced.
//
// What is written travels in records (record.h) and is kept until the peer's reader has taken it.
// When the link is lost the verbs answer kWouldBlock and Wait waits, until Attach brings another
// link and both ends send again what the other one has not taken, or until the grace is over: then
// everything answers kFailed, for good.  What was taken is known to the byte, so nothing is lost
// and nothing comes twice, wherever the cut was.
//
// Threads: as with every Connection.  Attach, Fail, AwaitCut and Stats may be called by any thread.
// Locks are taken in the order receive, send, state.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/transport/lane/record.h"
#include "rgpu_common/native/transport/lane/window.h"
#include "rgpu_common/native/transport/transport.h"
#include "rgpu_common/native/wire/codec.h"

namespace rgpu::transport {

struct LaneOptions {
  // The same on both ends.
  size_t window_bytes = kWindowBytes;
  // So much was received and nothing is to be sent: an acknowledgement goes alone.
  size_t ack_bytes = 1U << 20;
  // How long the lane may be without a link.
  int grace_ms = 10000;
  // Nobody reads: what comes is dropped.
  bool discard = false;
};

struct LaneStats {
  uint64_t cuts = 0;
  uint64_t resumes = 0;  // a link after a cut
  uint64_t moves = 0;    // a link in place of one that still worked
  uint64_t resent_bytes = 0;
};

// Hears of the link.  Called by whichever thread found out, with locks of its callers: must neither
// wait nor call the lane.
class LaneWatcher {
 public:
  virtual void OnCut() = 0;
  virtual void OnLink() = 0;

 protected:
  ~LaneWatcher() = default;
};

enum class AttachState : uint8_t {
  kAttached,
  kStale,     // the epoch is not newer than the one of the last link
  kMismatch,  // the peer says that it received what was never sent
  kGone,      // the lane has ended, or the new link broke at once
};

class Lane final : public Connection {
 public:
  // `link` carries bytes as they are until StartRecords.
  Lane(std::unique_ptr<Connection> link, const LaneOptions& options,
       LaneWatcher* watcher = nullptr);
  ~Lane() override;

  // From here on both directions are records.  `ahead`: bytes of the peer's first records that were
  // read together with what came before them, at most kReadAheadBytes.
  void StartRecords(wire::ByteView ahead = {});

  IoResult TrySend(const iovec* parts, int count) override;
  IoResult TryRecv(void* to, size_t bytes) override { return Receive(to, bytes, How::kTry); }
  IoResult TryRecvGuarded(void* to, size_t bytes) override {
    return Receive(to, bytes, How::kGuarded);
  }
  IoResult Recv(void* to, size_t bytes, int timeout_ms) override;
  bool HasInput() const override { return has_input_.load(); }
  bool HasOutput() const override { return output_due_ && (up() || cut()); }
  // A record that was begun is taken whole.
  bool free_order() const override { return records_; }
  int Wait(int events, int timeout_ms) override;
  void Lend(const void* memory, size_t bytes) override;
  void TakeBack(const void* memory, size_t bytes) override;
  void Wake() override;
  void Shutdown() override;
  void Abandon() override;
  const char* kind() const override { return kind_.load(); }
  bool checks_memory() const override { return checks_memory_; }
  std::string LostReason() const override;

  // Puts `link` in the place of the one there is or was.  `epoch` counts the links of a lane;
  // `received` is what the peer says that it has taken.  `greet`, if given, is called on the new
  // link with what was taken here, before it carries records; false: the link is of no use; without
  // it the peer was told before.  Unless it is attached the link stays the caller's.
  AttachState Attach(std::unique_ptr<Connection>& link, uint32_t epoch, uint64_t received,
                     const std::function<bool(Connection&, uint64_t)>& greet = {});
  // There is a link; else a cut, or the end.
  bool linked() const { return up(); }
  bool cut() const { return phase() == Phase::kCut; }
  // What the reader here has taken: a peer that resumes sends what lies behind it.
  uint64_t received() const { return received_.load(); }
  // Blocks until the link is lost, and looks after a link that nobody waits on meanwhile.  False:
  // the lane has ended.
  bool AwaitCut();
  // While there is no link: how long there may still be none.
  int grace_left_ms() const;
  // Ends the lane: from now on everything answers kFailed.
  void Fail(std::string_view reason);
  LaneStats stats() const;

  static constexpr size_t kReadAheadBytes = 32U << 10;

 private:
  enum class Phase : uint8_t {
    kUp,
    kCut,
    kEnded,   // by the peer, in good order
    kClosed,  // by Shutdown or Abandon
    kFailed,
  };
  // How to take bytes: what is there, the same into memory that is perhaps not there, or wait for
  // the first one.
  enum class How : uint8_t { kTry, kGuarded, kBlock };
  using Lock = std::unique_lock<std::mutex>;

  // lane.cc
  AttachState Displace(uint32_t epoch, uint64_t received);
  bool StillNewer(uint32_t epoch) const;
  void Enter(std::unique_ptr<Connection>& link, uint32_t epoch);
  Phase phase() const { return phase_.load(std::memory_order_acquire); }
  bool up() const { return phase() == Phase::kUp; }
  IoResult Verdict() const;
  void LinkLost(const std::shared_ptr<Connection>& link);
  void SetPhase(Phase phase, std::string_view reason);
  std::shared_ptr<Connection> link() const;

  // lane_wait.cc
  int WaitOnLink(Lock& state, int events, int timeout_ms);
  void WaitForChange(Lock& state, int timeout_ms);
  int WaitAndFlush(Lock& state, int wanted, int timeout_ms);
  void WaitForRoom(Lock& state, int timeout_ms);
  std::string GraceSentence() const;

  // lane_send.cc
  IoResult SendSome(const iovec* parts, int count);
  void StartRecord(uint64_t offset, uint64_t bytes, uint32_t flags);
  IoResult WriteRecord(const iovec* parts, int count, size_t* sent);
  void Keep(const iovec* parts, int count, size_t bytes);
  size_t KeepRest(const iovec* parts, int count, size_t sent);
  void SetOutputDue(bool due);
  uint64_t unacked() const;
  bool has_room() const;
  void Flush();
  IoResult FlushLocked();
  IoResult SendDue();
  IoResult Resend();
  void OnSendFailure(const std::shared_ptr<Connection>& link);

  // lane_receive.cc
  IoResult Receive(void* to, size_t bytes, How how);
  IoResult Take(uint8_t* to, size_t bytes, How how);
  IoResult TakeStash(uint8_t* to, size_t bytes, How how);
  IoResult ReadLink(uint8_t* to, size_t bytes, How how);
  IoState NextRecord(size_t hint, bool may_read, How how);
  bool may_block() const;
  bool BeginBlocking();
  void EndBlocking();
  bool Accept(const RecordHeader& header);
  IoState Refill(size_t limit, How how);
  void Taken(size_t bytes);
  void PumpInput();
  void DrainRaw();
  void Stash(const uint8_t* data, size_t bytes);
  void NoteInput();
  size_t raw_bytes() const { return raw_end_ - raw_begin_; }
  size_t stash_bytes() const { return stash_.size() - stash_begin_; }
  void OnReceiveFailure(const std::shared_ptr<Connection>& link);

  const LaneOptions options_;
  LaneWatcher* const watcher_;
  std::atomic<bool> records_{false};
  std::atomic<const char*> kind_;
  std::atomic<bool> checks_memory_;
  std::atomic<Phase> phase_{Phase::kUp};

  mutable std::mutex state_mutex_;
  std::condition_variable changed_;
  std::shared_ptr<Connection> link_;        // state_mutex_
  std::atomic<Connection*> bare_link_;      // for Abandon
  uint32_t epoch_ = 0;                      // state_mutex_
  std::shared_ptr<Connection> displaced_;   // state_mutex_; Attach ends this link: that is no cut
  base::Deadline grace_{-1};                // state_mutex_; of a cut
  std::string reason_;                      // state_mutex_
  LaneStats stats_;                         // state_mutex_
  std::atomic<uint32_t> readers_{0};        // threads that wait on the link to read
  std::atomic<bool> reading_acks_{false};   // a thread reads because the window is full
  std::atomic<bool> displacing_{false};     // displaced_ is set
  std::atomic<bool> awaiting_acks_{false};  // it waits on the link
  std::atomic<uint32_t> full_waiters_{0};   // threads that wait for the window
  std::atomic<bool> woken_{false};

  std::mutex send_mutex_;
  std::shared_ptr<Connection> send_link_;  // send_mutex_, as all up to the atomics
  Window window_;
  const uint8_t* lent_ = nullptr;
  size_t lent_bytes_ = 0;
  std::atomic<bool> unreadable_{false};  // lent memory is gone
  RecordHeader header_;
  size_t header_left_ = 0;  // bytes of it that are still to be sent
  uint64_t record_left_ = 0;
  bool link_was_full_ = false;
  uint64_t resend_ = 0;                // up to here the link that there is has it
  std::atomic<uint64_t> sent_{0};      // bytes of the stream
  std::atomic<uint64_t> promised_{0};  // with the rest of the record that was begun
  std::atomic<uint64_t> acked_{0};     // by the peer
  std::atomic<bool> ack_due_{false};
  std::atomic<bool> output_due_{false};  // something waits for room in the link
  std::atomic<uint64_t> told_{0};        // what the peer was told last that was received

  std::mutex receive_mutex_;
  std::shared_ptr<Connection> receive_link_;  // receive_mutex_, as all up to the atomics
  std::unique_ptr<uint8_t[]> raw_;            // bytes of the link that were read ahead
  size_t raw_begin_ = 0;
  size_t raw_end_ = 0;
  uint64_t in_left_ = 0;  // of the record that is being read
  uint64_t skip_ = 0;     // of them, bytes that are here already
  uint64_t next_ = 0;     // offset behind everything that came: received_ + the stash
  bool large_ = false;
  std::atomic<bool> end_seen_{false};
  std::atomic<bool> broken_{false};  // the peer sent what is no record
  std::vector<uint8_t> stash_;       // came while somebody only looked for acknowledgements
  size_t stash_begin_ = 0;
  std::atomic<uint64_t> received_{0};
  std::atomic<bool> has_input_{false};
};

}  // namespace rgpu::transport
