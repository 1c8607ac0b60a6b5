// Lane: one ordered stream of bytes over links (connections) that may break and be replaced.
//
// Bytes travel in records (record.h). The sender keeps them until the peer's reader has taken them.
// When the link is lost, sends and receives return kWouldBlock, and Wait waits. Attach then brings
// another link, and both ends send again the bytes that the other end has not taken. If no link
// comes before the grace is over, every call returns kFailed from then on. Both ends know to the
// byte what was taken, so a cut at any place loses nothing and repeats nothing.
//
// Threads: the rules of Connection hold. Attach, Fail, AwaitCut and stats may be called by any
// thread. Locks are taken in the order receive, send, state.
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
#include "rgpu_common/native/transport/receiving.h"
#include "rgpu_common/native/transport/transport.h"
#include "rgpu_common/native/wire/codec.h"

namespace rgpu::transport {

struct LaneOptions {
  // The size of the retransmit window, which must be the same on both ends.
  size_t window_bytes = kWindowBytes;
  // After so many received bytes, an acknowledgement is sent even if there is nothing else to send.
  size_t ack_bytes = 1U << 20;
  // How long the lane may be without a link.
  int grace_ms = 10000;
  // No thread reads this lane: received bytes are dropped.
  bool discard = false;
};

struct LaneStats {
  uint64_t cuts = 0;
  uint64_t resumes = 0;  // links attached after a cut
  uint64_t moves = 0;    // links attached in place of a link that still worked
  uint64_t resent_bytes = 0;
};

// Is told when the link is lost and when a new one is attached. The thread that finds out makes the
// call, and its callers may hold locks: the watcher must neither wait nor call the lane.
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
  kMismatch,  // the peer claims to have received bytes that were never sent
  kGone,      // the lane has ended, or the new link broke at once
};

class Lane final : public Connection {
 public:
  // `link` carries plain bytes until StartRecords.
  Lane(std::unique_ptr<Connection> link, const LaneOptions& options,
       LaneWatcher* watcher = nullptr);
  ~Lane() override;

  // From here on, both directions carry records. `ahead` holds bytes of the peer's first records
  // that have already been read from the link, at most kReadAheadBytes.
  void StartRecords(wire::ByteView ahead = {});

  IoResult TrySend(const iovec* parts, int count) override;
  IoResult TryRecv(void* to, size_t bytes) override { return Receive(to, bytes, How::kTry); }
  IoResult TryRecvGuarded(void* to, size_t bytes) override {
    return Receive(to, bytes, How::kGuarded);
  }
  IoResult Recv(void* to, size_t bytes, int timeout_ms) override;
  bool HasInput() const override { return has_input_.load(); }
  bool HasOutput() const override { return output_due_ && (up() || cut()); }
  // True with records, because TrySend takes a record that was begun as a whole.
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

  // Replaces the lane's present or lost link by `link`. `epoch` is the number of the link in this
  // lane. `received` is how many bytes the peer says that it has taken. Before the new link carries
  // records, `greet` is called with the number of bytes that this end has taken; it returns false
  // if the link has failed. Without `greet`, the caller has told the peer before. The link stays
  // the caller's unless the result is kAttached.
  AttachState Attach(std::unique_ptr<Connection>& link, uint32_t epoch, uint64_t received,
                     const std::function<bool(Connection&, uint64_t)>& greet = {});
  // True while the lane has a link. False after a cut, and when the lane has ended.
  bool linked() const { return up(); }
  bool cut() const { return phase() == Phase::kCut; }
  // The number of bytes that the reader here has taken. A peer that resumes sends the bytes after
  // them.
  uint64_t received() const { return received_.load(); }
  // Blocks until the link is lost. Meanwhile it handles events of the link if no other thread waits
  // on it. False: the lane has ended.
  bool AwaitCut();
  // After a cut: the time left until the grace is over.
  int grace_left_ms() const;
  // Ends the lane: from then on every call returns kFailed.
  void Fail(std::string_view reason);
  LaneStats stats() const;

  static constexpr size_t kReadAheadBytes = 32U << 10;

 private:
  enum class Phase : uint8_t {
    kUp,
    kCut,
    kEnded,   // the peer has ended the stream in good order
    kClosed,  // after Shutdown or Abandon
    kFailed,
  };
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
  base::Deadline grace_{-1};                // state_mutex_; the end of the grace after a cut
  std::string reason_;                      // state_mutex_
  LaneStats stats_;                         // state_mutex_
  std::atomic<uint32_t> readers_{0};        // threads that wait on the link to read
  std::atomic<bool> reading_acks_{false};   // a thread reads acks because the window is full
  std::atomic<bool> displacing_{false};     // displaced_ is set
  std::atomic<bool> awaiting_acks_{false};  // that thread waits on the link
  std::atomic<uint32_t> full_waiters_{0};   // threads that wait for room in the window
  std::atomic<bool> woken_{false};

  std::mutex send_mutex_;
  std::shared_ptr<Connection> send_link_;  // send_mutex_, as all up to the atomics
  Window window_;
  const uint8_t* lent_ = nullptr;
  size_t lent_bytes_ = 0;
  std::atomic<bool> unreadable_{false};  // lent memory can no longer be read
  RecordHeader header_;                  // of the record that was begun
  size_t header_left_ = 0;               // bytes of header_ that are still to be sent
  uint64_t record_left_ = 0;             // bytes of the record that are still to be sent
  bool link_was_full_ = false;
  uint64_t resend_ = 0;                // the present link has taken the stream up to here
  std::atomic<uint64_t> sent_{0};      // bytes of the stream that were sent
  std::atomic<uint64_t> promised_{0};  // sent_ and the rest of the record that was begun
  std::atomic<uint64_t> acked_{0};     // bytes of the stream that the peer acknowledged
  std::atomic<bool> ack_due_{false};
  std::atomic<bool> output_due_{false};  // bytes wait for room in the link
  std::atomic<uint64_t> told_{0};        // the last acknowledgement that was sent

  std::mutex receive_mutex_;
  std::shared_ptr<Connection> receive_link_;  // receive_mutex_, as all up to the atomics
  std::unique_ptr<uint8_t[]> raw_;            // bytes that were read ahead from the link
  size_t raw_begin_ = 0;
  size_t raw_end_ = 0;
  uint64_t in_left_ = 0;  // bytes left of the record that is being read
  uint64_t skip_ = 0;     // bytes among them that an earlier link has already brought
  uint64_t next_ = 0;     // offset after the last byte of all accepted records
  bool large_ = false;    // the last record was large
  std::atomic<bool> end_seen_{false};
  std::atomic<bool> broken_{false};  // the peer sent bytes that are not a record
  std::vector<uint8_t> stash_;       // bytes received by a thread that only read acknowledgements
  size_t stash_begin_ = 0;
  std::atomic<uint64_t> received_{0};
  std::atomic<bool> has_input_{false};
};

}  // namespace rgpu::transport
