#include "rgpu_common/native/transport/lane/lane_link.h"

#include <errno.h>

#include <chrono>
#include <cstdio>
#include <utility>

namespace rgpu::transport {

LaneLink::LaneLink(std::unique_ptr<Connection> link, const LaneOptions& options,
                   LaneWatcher* watcher)
    : grace_ms_(options.grace_ms),
      watcher_(watcher),
      kind_(link->kind()),
      checks_memory_(link->checks_memory()),
      bare_link_(link.get()),
      link_(std::move(link)),
      epoch_(options.epoch) {}

IoResult LaneLink::Verdict() const {
  switch (phase()) {
    case Phase::kUp:
    case Phase::kCut:
      return {IoState::kWouldBlock, 0, 0};
    case Phase::kFailed:
      return {IoState::kFailed, 0, ETIMEDOUT};
    default:
      return {IoState::kClosed, 0, 0};
  }
}

std::shared_ptr<Connection> LaneLink::current() const {
  const std::lock_guard lock(mutex_);
  return link_;
}

std::string LaneLink::reason() const {
  const std::lock_guard lock(mutex_);
  return reason_;
}

LaneStats LaneLink::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

int LaneLink::grace_left_ms() const {
  const std::lock_guard lock(mutex_);
  return cut() ? grace_.left_ms() : grace_ms_;
}

void LaneLink::Lost(const std::shared_ptr<Connection>& link) {
  {
    const std::lock_guard lock(mutex_);
    if (link != link_ || link == displaced_ || !up()) return;
    phase_ = Phase::kCut;
    grace_ = base::Deadline(grace_ms_);
    ++stats_.cuts;
    NotifyLocked();
  }
  link->Shutdown();  // wakes the threads that wait on it
  if (watcher_ != nullptr) watcher_->OnCut();
}

// Sets the phase, unless the lane has ended already. With the lock.
void LaneLink::SetPhase(Phase phase, std::string_view reason) {
  if (!lasts()) return;
  phase_ = phase;
  if (reason_.empty()) reason_ = reason;
  NotifyLocked();
}

bool LaneLink::End(Phase phase, std::string_view reason) {
  const std::lock_guard lock(mutex_);
  const bool was_up = up();
  SetPhase(phase, reason);
  return was_up;
}

void LaneLink::Fail(std::string_view reason) {
  End(Phase::kFailed, reason);
  current()->Shutdown();  // a lane that has ended keeps its last link
}

void LaneLink::FailLate(std::string_view reason) {
  late_ = true;
  Fail(reason);
}

void LaneLink::Abandon() {
  phase_ = Phase::kClosed;
  bare_link_.load()->Abandon();
}

AttachState LaneLink::Displace(uint32_t epoch, uint64_t received, uint64_t promised) {
  std::shared_ptr<Connection> old;
  {
    const std::lock_guard lock(mutex_);
    if (!lasts()) return AttachState::kGone;
    if (epoch <= epoch_) return AttachState::kStale;
    if (received > promised) return AttachState::kMismatch;
    old = link_;
    if (up()) {
      displaced_ = old;
      displacing_ = true;
    }
  }
  old->Shutdown();
  return AttachState::kAttached;
}

bool LaneLink::StillNewer(uint32_t epoch) const {
  const std::lock_guard lock(mutex_);
  return epoch > epoch_;
}

AttachState LaneLink::Enter(std::unique_ptr<Connection>& link, uint32_t epoch,
                            uint64_t resent_bytes) {
  const std::lock_guard lock(mutex_);
  const bool moved = displaced_ != nullptr;
  displaced_ = nullptr;
  displacing_ = false;
  NotifyLocked();
  if (!lasts()) return AttachState::kGone;
  ++(moved ? stats_.moves : stats_.resumes);
  stats_.resent_bytes += resent_bytes;
  // A child that is forked meanwhile abandons the link that bare_link_ points to. `old` keeps the
  // previous link alive until bare_link_ points to the new one.
  const std::shared_ptr<Connection> old = link_;
  epoch_ = epoch;
  bare_link_ = link.get();
  link_ = std::move(link);
  kind_ = link_->kind();
  checks_memory_ = link_->checks_memory();
  phase_ = Phase::kUp;
  return AttachState::kAttached;
}

void LaneLink::AnnounceLink() {
  if (watcher_ != nullptr) watcher_->OnLink();
}

std::shared_ptr<Connection> LaneLink::Notify() {
  const std::lock_guard lock(mutex_);
  NotifyLocked();
  return link_;
}

void LaneLink::WaitForChange(Lock& lock, int timeout_ms) {
  if (timeout_ms < 0) {
    changed_.wait(lock);
  } else {
    changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms));
  }
}

bool LaneLink::FailAfterGrace() {
  if (!grace_.passed()) return false;
  char sentence[96];
  std::snprintf(sentence, sizeof sentence,
                "the connection was cut and not resumed within the %g s of resume_grace",
                grace_ms_ / 1000.0);
  late_ = true;
  SetPhase(Phase::kFailed, sentence);
  return true;
}

}  // namespace rgpu::transport
