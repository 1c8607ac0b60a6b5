// Turns: what is admitted under a grant, and when the token goes back.
#include "rgpu_server/executor/gate/state.h"

#include <algorithm>

#include "rgpu_server/executor/gate/limits.h"

namespace rgpu::exec {

using lease::Phase;

void GateState::On(const event::Asked& asked, uint64_t now_ns) {
  asked_ = asked;
  Reply(Ask(now_ns), now_ns);
}

// The answer to asked_.
GateState::Answer GateState::Ask(uint64_t now_ns) {
  event::Asked& asked = *asked_;
  if (asked.in_stream) {
    // What was set aside runs no more once the session has failed: nobody would charge for it.
    if (failed_ && asked.returns != nullptr && !Returning(asked.returns).empty()) {
      return Answer::kHold;
    }
    // Work on the device may be waiting for this stream, so the stream must go on.
    if (!scheduled() || failed_ || (active_ != 0 && !work_.empty())) return Answer::kAdmit;
    if (asked.returns != nullptr) {
      for (const auto& stream : Returning(asked.returns)) asked.ns += stream->aside.ns;
      if (asked.ns == 0) return Answer::kAdmit;
    }
  }
  if (link_lost_ && !failed_) return Answer::kHold;
  if (!scheduled() || failed_) return Answer::kAdmit;
  // What a stream asks for is many pieces at once, and no measure of one.
  if (kernel_ns_ == 0) {
    kernel_ns_ = asked.ns;
  } else if (!asked.in_stream) {
    kernel_ns_ = (kernel_ns_ * 7 + asked.ns) / 8;
  }
  return AskUnderGrant(now_ns);
}

GateState::Answer GateState::AskUnderGrant(uint64_t now_ns) {
  if (stale_) return FitsAlone(now_ns) ? Answer::kAdmit : HoldUnlessStuck(now_ns);
  if (!grant_.running()) return HoldUnlessStuck(now_ns);
  if (active_ == 0) {
    slot_.near_end_gen = slot_.spent_gen = 0;
    slot_.active_gen = grant_.generation;
    return Answer::kEnter;
  }
  // An older grant must be given back before the session may work under this one.
  const bool mine = active_ == grant_.generation;
  return mine && Fits(now_ns) ? Answer::kAdmit : HoldUnlessStuck(now_ns);
}

void GateState::On(const event::Entered& entered, uint64_t now_ns) {
  if (!asked_) return;
  const uint64_t generation = slot_.active_gen;
  if (!entered.grant.running() || entered.grant.generation != generation) {
    slot_.active_gen = 0;
    actions_.look = true;  // there is another grant
    Reply(HoldUnlessStuck(now_ns), now_ns);
    return;
  }
  grant_ = entered.grant;
  active_ = generation;
  used_ = false;
  patience_.Moved(now_ns);
  Reply(Fits(now_ns) ? Answer::kAdmit : HoldUnlessStuck(now_ns), now_ns);
}

void GateState::Reply(Answer answer, uint64_t now_ns) {
  if (answer == Answer::kEnter) {
    actions_.enter = true;
    return;
  }
  (answer == Answer::kAdmit ? actions_.admit : actions_.hold) = true;
  const event::Asked asked = *asked_;
  asked_.reset();
  if (answer == Answer::kAdmit && asked.returns != nullptr) Return(asked.returns, now_ns);
}

GateState::Answer GateState::HoldUnlessStuck(uint64_t now_ns) {
  if (MayBeStuck(asked_->has_streams) && patience_.LetsThrough(now_ns, kernel_ns_)) {
    return Answer::kAdmit;
  }
  Want(now_ns);
  return Answer::kHold;
}

// True if work that is held back may be what the work on the device waits for.  Held work may then
// go in spite of the slice's end, also after a recall, at the lease's expense.
bool GateState::MayBeStuck(bool has_streams) const {
  return active_ != 0 && !work_.empty() && has_streams;
}

bool GateState::HasRoom() const { return work_.in_flight().ns < open_budget_ns_ / 2; }

bool GateState::Fits(uint64_t now_ns) {
  if (grant_.phase != Phase::kOpen) return FitsSlice(now_ns);
  return work_.empty() || work_.in_flight().ns + asked_->ns <= open_budget_ns_;
}

// The rule of a slice.  The time that the work on the device takes is bounded, and the last piece
// is admitted while at least half of it still lies in the slice.  The first piece is always
// admitted, or a kernel that is longer than a slice would never run.
bool GateState::FitsSlice(uint64_t now_ns) {
  const uint64_t ns = asked_->ns;
  const bool in_stream = asked_->in_stream;
  const uint64_t in_flight = work_.in_flight().ns + asked_->others_ns;
  const uint64_t elapsed = now_ns - std::min(grant_.start_ns, now_ns);
  const bool first =
      !used_ && in_flight == 0 && elapsed < grant_.slice_ns && (in_stream || MayAddToAside(now_ns));
  const bool over = elapsed + in_flight + ns / 2 > grant_.slice_ns;
  const bool some_aside = aside_pieces_.ns > kMostAsideNs && !in_stream;
  if (!first && (over || some_aside || MuchAside())) {
    if (slot_.near_end_gen != active_) {
      slot_.near_end_gen = active_;
      actions_.signal = true;
    }
    // No work is left whose completion would give the token back.
    if (work_.empty()) {
      slot_.spent_gen = active_;
      Leave(true);
    }
    return false;
  }
  if (in_flight != 0 && in_flight + ns > kSharedBudgetNs) return false;
  used_ = true;
  return true;
}

// Without a token loop the lease spends its share, one piece or a few milliseconds at a time.
bool GateState::FitsAlone(uint64_t now_ns) {
  if (!own_share_.HasCredit(now_ns, request_ppm_, workers_)) return false;
  return work_.empty() || work_.in_flight().ns + asked_->ns <= kSharedBudgetNs;
}

// Work is held back: the token loop is told that the session wants the device.
void GateState::Want(uint64_t now_ns) {
  if (held_since_ns_ == 0) {
    held_since_ns_ = now_ns;
    patience_.Begin(now_ns);
  }
  if (!slot_.wants) {
    slot_.kernel_us = static_cast<uint32_t>(std::min(kernel_ns_ / 1'000, kMostKernelUs));
    slot_.wants = true;
    // Under a grant there is nothing to ask for; the loop hears when the grant is over.
    if (active_ == 0) actions_.signal = true;
  }
  actions_.wake_watcher = true;
}

void GateState::NoLongerHeld(uint64_t now_ns) {
  if (holding_ || awaiting_ > 0 || held_since_ns_ == 0) return;
  slot_.held_back_ns += now_ns - held_since_ns_;
  held_since_ns_ = 0;
  slot_.wants = false;
  // A grant that is on its way finds nobody who wants it.
  if (active_ == 0) actions_.signal = true;
}

void GateState::WakeHeld() {
  if (holding_ || awaiting_ > 0) actions_.wake_held = true;
}

void GateState::On(const event::Holding& holding, uint64_t now_ns) {
  if (holding_ == holding.holding) return;
  holding_ = holding.holding;
  NoLongerHeld(now_ns);
}

void GateState::On(const event::AwaitEnded&, uint64_t now_ns) {
  --awaiting_;
  NoLongerHeld(now_ns);
}

void GateState::On(const event::LinkBack&, uint64_t) {
  link_lost_ = false;
  WakeHeld();
}

void GateState::On(const event::Looked& looked, uint64_t now_ns) {
  const bool changed = !(looked.grant == grant_);
  if (changed) CountStanding(now_ns);  // from here on others may wait for the device
  grant_ = looked.grant;
  const bool silent = scheduled() && looked.heartbeat_ns + kLoopSilentNs < now_ns;
  if (silent && !stale_) own_share_.Begin(now_ns);
  stale_ = silent;
  request_ppm_ = looked.request_ppm;
  workers_ = std::max<uint64_t>(looked.workers, 1);
  open_budget_ns_ = kOpenBudgetNs / std::max<uint64_t>(looked.active_workers, 1);
  // A slice that was made longer ends at another time.
  if (active_ != 0 && changed) slot_.near_end_gen = 0;
  if (failed_) return Abandon(now_ns);
  SetAside(now_ns);
  if (active_ != 0 && work_.empty() && !stale_) GiveBack(now_ns);
  // A session that holds work back for a client that is away does not want the device.
  if (slot_.wants && link_lost_) {
    slot_.wants = false;
    actions_.signal = true;
  }
  // Work without a marker would never be known to be complete.
  if (active_ != 0 && !alone()) actions_.mark = true;
  // Another worker of the lease may have used up the budget; nobody tells this one that it has not.
  const bool refused = active_ != 0 && work_.empty();
  if (changed || stale_ || refused) WakeHeld();
  // Alone, the executor's poller finds out what is complete, and no thread waits for it.
  if (changed && alone() && !work_.watched().empty()) actions_.hurry = true;
}

// Nothing is on the device: gives the token back if the grant is over or is not used any more.
void GateState::GiveBack(uint64_t now_ns) {
  const bool mine = grant_.running() && grant_.generation == active_;
  const uint64_t idle_ns = now_ns - std::min(slot_.drained_ns, now_ns);
  if (!mine || link_lost_) {
    Leave(true);
  } else if (slot_.near_end_gen == active_) {
    slot_.spent_gen = active_;
    Leave(true);
  } else if (grant_.phase == Phase::kSlice && used_ && !holding_ && awaiting_ == 0 &&
             idle_ns >= kGraceNs) {
    Leave(true);
  }
}

// The token goes back.  `tell`: the token loop waits for it.
void GateState::Leave(bool tell) {
  if (active_ == 0) return;
  active_ = 0;
  slot_.active_gen = 0;
  if (tell) actions_.signal = true;
}

// The session has failed.  The token goes back when the work that the session had on the device has
// stopped, and the time until then is charged.  Work that was set aside stays set aside, and its
// streams do not go on.
void GateState::Abandon(uint64_t now_ns) {
  if (active_ == 0 || work_.empty()) return AbandonNow(now_ns);
  work_.CountBusy(now_ns);
  if (failed_busy_since_ns_ == 0) failed_busy_since_ns_ = now_ns;
  actions_.ask_driver = true;
  actions_.overdue = now_ns - failed_busy_since_ns_ >= kStopNs;
}

void GateState::AbandonNow(uint64_t now_ns) {
  work_.Clear();
  slot_.drained_ns = now_ns;
  Leave(true);
  WakeHeld();
}

void GateState::On(const event::Stopped&, uint64_t now_ns) {
  if (failed_) AbandonNow(now_ns);
}

bool GateState::RunsLong(uint64_t now_ns) const {
  return active_ != 0 && !work_.empty() && now_ns - work_.counted_ns() >= kLongKernelNs;
}

void GateState::On(const event::StillRuns&, uint64_t now_ns) {
  if (!CountStanding(now_ns) && active_ != 0 && !work_.empty()) work_.CountBusy(now_ns);
}

void GateState::On(const event::Ticked& ticked, uint64_t now_ns) {
  if (!alone() || holding_ || awaiting_ > 0) actions_.wake_watcher = true;
  if (MayBeStuck(ticked.has_streams) && patience_.Over(now_ns, kernel_ns_)) WakeHeld();
}

uint64_t GateState::SleepNs() const {
  const bool held = holding_ || awaiting_ > 0;
  if (active_ != 0 && (held || failed_)) return kStuckLookNs;
  if (active_ != 0 && !alone() && !standing_.empty()) return kClientNs;
  return held || active_ != 0 ? kBusyLookNs : kIdleLookNs;
}

// Each wake of the thread takes a processor from the device where the device is emulated.  At the
// end of a slice nothing is admitted before all work is complete.  Before that, room comes when
// half of it is complete.
std::optional<uint64_t> GateState::ToWatch() const {
  const auto& markers = work_.watched();
  if (markers.empty() || !hurry() || failed_) return std::nullopt;
  if (alone()) return markers[markers.size() / 2];
  const bool over =
      grant_.generation != active_ || !grant_.running() || slot_.near_end_gen == active_;
  return over ? markers.back() : markers[(markers.size() - 1) / 2];
}

}  // namespace rgpu::exec
