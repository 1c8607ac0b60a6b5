// Lane: one ordered stream of bytes over links (connections) that may break and be replaced.
//
// Bytes travel in records (record.h). The sender keeps them until the peer's reader has taken them.
// When the link is lost, sends and receives return kWouldBlock, and Wait waits. Attach then brings
// another link, and both ends send again the bytes that the other end has not taken. If no link
// comes before the grace is over, every call returns kFailed from then on. Both ends know to the
// byte what was taken, so a cut at any place loses nothing and repeats nothing.
//
// A lane joins its parts. LaneLink knows which link the lane has, and whether the lane goes on.
// LaneReaders knows which threads read the link. LaneReceiver and LaneSender are the two halves;
// they tell each other their offsets in LaneProgress. LaneWait lets threads wait. Each part uses
// only the parts that are named before it.
//
// Threads: the rules of Connection hold. Attach, Fail, AwaitCut and stats may be called by any
// thread. Locks are taken in this order: LaneReceiver's, LaneSender's, LaneLink's.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "rgpu_common/native/transport/lane/lane_link.h"
#include "rgpu_common/native/transport/lane/lane_options.h"
#include "rgpu_common/native/transport/lane/lane_progress.h"
#include "rgpu_common/native/transport/lane/lane_readers.h"
#include "rgpu_common/native/transport/lane/lane_receiver.h"
#include "rgpu_common/native/transport/lane/lane_sender.h"
#include "rgpu_common/native/transport/lane/lane_wait.h"
#include "rgpu_common/native/transport/receiving.h"
#include "rgpu_common/native/transport/transport.h"
#include "rgpu_common/native/wire/codec.h"

namespace rgpu::transport {

class Lane final : public Connection {
 public:
  // `link` carries plain bytes until StartRecords.
  Lane(std::unique_ptr<Connection> link, const LaneOptions& options,
       LaneWatcher* watcher = nullptr);
  ~Lane() override;

  // From here on, both directions carry records. `ahead` holds bytes of the peer's first records
  // that have already been read from the link, at most ReadAhead::kCapacity.
  void StartRecords(wire::ByteView ahead = {});

  IoResult TrySend(const iovec* parts, int count) override;
  IoResult TryRecv(void* to, size_t bytes) override { return Receive(to, bytes, How::kTry); }
  IoResult TryRecvGuarded(void* to, size_t bytes) override {
    return Receive(to, bytes, How::kGuarded);
  }
  IoResult Recv(void* to, size_t bytes, int timeout_ms) override;
  bool HasInput() const override { return receiver_.has_input(); }
  bool HasOutput() const override { return progress_.output_due && (linked() || cut()); }
  // True with records, because TrySend takes a record that was begun as a whole.
  bool free_order() const override { return records_; }
  int Wait(int events, int timeout_ms) override;
  void Lend(const void* memory, size_t bytes) override { sender_.Lend(memory, bytes); }
  void TakeBack(const void* memory, size_t bytes) override { sender_.TakeBack(memory, bytes); }
  void Wake() override { wait_.Wake(); }
  void Shutdown() override;
  void Abandon() override { link_.Abandon(); }
  const char* kind() const override { return link_.kind(); }
  bool checks_memory() const override { return link_.checks_memory(); }
  std::string LostReason() const override { return link_.reason(); }

  // Replaces the lane's present or lost link by `link`. `epoch` is the number of the link in this
  // lane. `received` is how many bytes the peer says that it has taken. Before the new link carries
  // records, `greet` is called with the number of bytes that this end has taken; it returns false
  // if the link has failed. Without `greet`, the caller has told the peer before. The link stays
  // the caller's unless the result is kAttached.
  AttachState Attach(std::unique_ptr<Connection>& link, uint32_t epoch, uint64_t received,
                     const std::function<bool(Connection&, uint64_t)>& greet = {});
  // True while the lane has a link. False after a cut, and when the lane has ended.
  bool linked() const { return link_.up(); }
  bool cut() const { return link_.cut(); }
  // True if the lane has ended because no link came before the grace was over.
  bool late() const { return link_.late(); }
  // The number of bytes that the reader here has taken. A peer that resumes sends the bytes after
  // them.
  uint64_t received() const { return progress_.received.load(); }
  // Blocks until the link is lost. Meanwhile it handles events of the link if no other thread waits
  // on it. False: the lane has ended.
  bool AwaitCut() { return wait_.AwaitCut(); }
  // After a cut: the time left until the grace is over.
  int grace_left_ms() const { return link_.grace_left_ms(); }
  // Ends the lane: from then on every call returns kFailed.
  void Fail(std::string_view reason) { link_.Fail(reason); }
  // Ends the lane because the grace is over.
  void FailLate(std::string_view reason) { link_.FailLate(reason); }
  LaneStats stats() const { return link_.stats(); }

 private:
  IoResult Receive(void* to, size_t bytes, How how);

  const LaneOptions options_;
  std::atomic<bool> records_{false};
  LaneProgress progress_;
  LaneLink link_;
  LaneReaders readers_;
  LaneReceiver receiver_;
  LaneSender sender_;
  LaneWait wait_;
};

}  // namespace rgpu::transport
