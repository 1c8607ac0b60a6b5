// LaneLink: which link a lane has, and whether the lane goes on. A lane is cut while it has no
// link. It fails when the grace is over, and it may be ended by either side.
//
// Any thread may call it. Functions that say "with the lock" need mutex(). It is the last lock
// that a lane takes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/transport/lane/lane_options.h"
#include "rgpu_common/native/transport/transport.h"

namespace rgpu::transport {

class LaneLink {
 public:
  enum class Phase : uint8_t {
    kUp,
    kCut,
    kEnded,   // the peer has ended the stream in good order
    kClosed,  // after Shutdown or Abandon
    kFailed,
  };
  using Lock = std::unique_lock<std::mutex>;

  LaneLink(std::unique_ptr<Connection> link, const LaneOptions& options, LaneWatcher* watcher);

  bool up() const { return phase() == Phase::kUp; }
  bool cut() const { return phase() == Phase::kCut; }
  // True if the lane has ended because no link came before the grace was over.
  bool late() const { return late_; }
  // True while Attach takes the lane's link away. That is no cut.
  bool displacing() const { return displacing_; }
  // The result of a send or a receive that can move no bytes in the present phase.
  IoResult Verdict() const;
  const char* kind() const { return kind_.load(); }
  bool checks_memory() const { return checks_memory_; }
  // Asks the link again whether it checks memory.
  void UpdateChecksMemory() { checks_memory_ = current()->checks_memory(); }
  // The link, or the last one after a cut.
  std::shared_ptr<Connection> current() const;
  std::string reason() const;
  LaneStats stats() const;
  // After a cut: the time left until the grace is over.
  int grace_left_ms() const;

  // `link` has failed: the lane is cut, if that was its link.
  void Lost(const std::shared_ptr<Connection>& link);
  // Ends the lane, unless it has ended. True if it had a link until now.
  bool End(Phase phase, std::string_view reason);
  // Ends the lane with the phase kFailed, and its link.
  void Fail(std::string_view reason);
  // As Fail, because the grace is over.
  void FailLate(std::string_view reason);
  // Takes no lock: in a forked child, the threads that hold it do not exist.
  void Abandon();

  // Checks that a new link may replace the present one, and shuts the present one down, so that a
  // reader that blocks in it releases its lock. `received`: what the peer says that it has taken;
  // `promised`: the most that it can have taken.
  AttachState Displace(uint32_t epoch, uint64_t received, uint64_t promised);
  // False: a newer link was attached while this thread waited for the locks.
  bool StillNewer(uint32_t epoch) const;
  // Makes `link` the lane's link. With the locks of the sender and the receiver. `resent_bytes`
  // will be sent again.
  AttachState Enter(std::unique_ptr<Connection>& link, uint32_t epoch, uint64_t resent_bytes);
  // Tells the watcher that a link was attached.
  void AnnounceLink();

  // For threads that wait.
  std::mutex& mutex() const { return mutex_; }
  // With the lock: wakes the threads in WaitForChange.
  void NotifyLocked() { changed_.notify_all(); }
  // Wakes the threads in WaitForChange. Returns the link.
  std::shared_ptr<Connection> Notify();
  // Waits with the lock for a notification. Releases the lock meanwhile. -1: no limit.
  void WaitForChange(Lock& lock, int timeout_ms);
  // With the lock: the link, and whether it is being taken away.
  const std::shared_ptr<Connection>& locked_current() const { return link_; }
  bool displaced() const { return displaced_ != nullptr; }
  // With the lock, after a cut: the time until the grace is over.
  const base::Deadline& grace() const { return grace_; }
  // With the lock, after a cut: ends the lane if the grace is over.
  bool FailAfterGrace();

 private:
  Phase phase() const { return phase_.load(std::memory_order_acquire); }
  // True until the lane has ended.
  bool lasts() const { return up() || cut(); }
  void SetPhase(Phase phase, std::string_view reason);

  const int grace_ms_;
  LaneWatcher* const watcher_;
  std::atomic<const char*> kind_;
  std::atomic<bool> checks_memory_;
  std::atomic<Phase> phase_{Phase::kUp};
  std::atomic<bool> displacing_{false};  // displaced_ is set
  std::atomic<bool> late_{false};
  std::atomic<Connection*> bare_link_;  // for Abandon

  mutable std::mutex mutex_;  // for all members below
  std::condition_variable changed_;
  std::shared_ptr<Connection> link_;
  uint32_t epoch_;
  std::shared_ptr<Connection> displaced_;  // Attach ends this link: that is no cut
  base::Deadline grace_{-1};               // the end of the grace after a cut
  std::string reason_;
  LaneStats stats_;
};

}  // namespace rgpu::transport
