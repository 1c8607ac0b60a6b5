#include "rgpu_common/native/lease/turn.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "rgpu_common/native/lease/gate_limits.h"

namespace rgpu::lease {

using namespace limits;

namespace {

constexpr uint64_t kNever = uint64_t{1} << 62;
// While nobody else wants the device, so much predicted work may be on it between two measurements.
constexpr uint64_t kOpenBudgetNs = 20 * base::kMillisecond;
// So many operations are allowed at once before one was measured.
constexpr uint64_t kUnmeasured = 8;

}  // namespace

Turn::Turn(Page* page, uint32_t slot, base::UniqueFd signal, Finish finish)
    : page_(page),
      slot_(slot),
      signal_(std::move(signal)),
      finish_(finish),
      grant_(ReadGrant(page)),
      thread_([this] { Watch(); }) {}

Turn::~Turn() {
  End();
  thread_.join();
  Settle(running_ ? 0 : spare_);
  if (active_ != 0) Drop(true);
}

void Turn::End() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  ready_.store(0, std::memory_order_relaxed);
  watcher_.notify_one();
}

int64_t Turn::Enter(uint64_t left, uint64_t wait_ns) {
  std::unique_lock lock(mutex_);
  if (Continues()) return static_cast<int64_t>(spare_);
  Settle(running_ ? left : spare_);
  const uint64_t until_ns = base::NowNs() + wait_ns;
  while (!ended_) {
    const uint64_t now = base::NowNs();
    Look(now);
    const uint64_t count = Ask(now);
    if (count != 0) return Admit(count, now);
    Want(now);
    if (now >= until_ns) return 0;
    const uint64_t look_ns = active_ != 0 || stale_ ? kStuckLookNs : kBusyLookNs;
    const uint32_t futex = grant_.futex;
    lock.unlock();
    WaitGrant(page_, futex, std::min(look_ns, until_ns - now));
    lock.lock();
  }
  return -1;
}

void Turn::Leave(uint64_t left) {
  const std::lock_guard lock(mutex_);
  const uint64_t now = left_ns_ = base::NowNs();
  NoLongerHeld(now);
  if (finish_ != nullptr && active_ != 0 && granted_ != 0) {
    // The device may still work. The watcher waits for it if no operation comes soon.
    if (running_) spare_ = left;
    running_ = false;
    WatchAt(now + kGraceNs);
    return;
  }
  Settle(left);
  if (active_ == 0) return;
  const bool same = SameGrant(page_, grant_);
  if (same && grant_.phase == Phase::kOpen) return Drop(false);
  const bool over = now >= grant_.start_ns + grant_.slice_ns;
  if (!same || grant_.phase != Phase::kSlice || over) return Drop(true);
  ready_.store(0, std::memory_order_relaxed);
  WatchAt(now + kGraceNs);
}

// The worker left a moment ago, with operations on the device and some that it had not begun.
bool Turn::Continues() {
  if (finish_ == nullptr || running_ || spare_ == 0 || granted_ == 0 || ended_) return false;
  if (!SameGrant(page_, grant_)) return false;
  running_ = true;
  return true;
}

// The operations that were allowed last are over: their time is measured and charged.
void Turn::Settle(uint64_t left) {
  running_ = false;
  spare_ = 0;
  const uint64_t granted = std::exchange(granted_, 0);
  if (granted == 0) return;
  const uint64_t device_ns = finish_ != nullptr ? finish_() : 0;
  drained_ns_ = base::NowNs();
  const uint64_t ns = finish_ != nullptr ? device_ns : drained_ns_ - since_ns_;
  const uint64_t operations = granted - std::min(left, granted);
  Measure(ns, operations);
  Charge(ns - std::min(std::exchange(charged_ns_, 0), ns));
  slot().launches.fetch_add(operations, std::memory_order_relaxed);
  gate().in_flight_ns.store(0, std::memory_order_relaxed);
}

void Turn::Measure(uint64_t ns, uint64_t operations) {
  if (operations == 0) return;
  const uint64_t each = ns / operations;
  const bool certain = kernel_ns_ == 0 || operations >= kUnmeasured;
  kernel_ns_ = certain ? each : (kernel_ns_ * 7 + each) / 8;
}

void Turn::Charge(uint64_t ns) {
  if (!charges_ || ns == 0) return;
  slot().busy_ns.fetch_add(ns, std::memory_order_relaxed);
  if (stale_) own_share_.Spend(ns);
}

void Turn::Look(uint64_t now_ns) {
  if (!SameGrant(page_, grant_)) {
    grant_ = ReadGrant(page_);
    spent_ = false;
  }
  const uint64_t heartbeat_ns = page_->token.heartbeat_ns.load(std::memory_order_relaxed);
  const bool silent = grant_.phase != Phase::kOff && heartbeat_ns + kLoopSilentNs < now_ns;
  if (silent && !stale_) own_share_.Begin(now_ns);
  stale_ = silent;
  if (stale_) ready_.store(0, std::memory_order_relaxed);
}

// How many operations may begin.
uint64_t Turn::Ask(uint64_t now_ns) {
  if (grant_.phase == Phase::kOff) {
    if (active_ != 0) Drop(true);
    return kMany;
  }
  if (stale_) {
    // Without a token loop the lease spends its share, one operation at a time.
    const uint32_t request_ppm = page_->share_request_ppm.load(std::memory_order_relaxed);
    return own_share_.HasCredit(now_ns, request_ppm, Workers()) ? 1 : 0;
  }
  if (active_ != 0 && !mine()) {
    Want(now_ns);
    Drop(true);
  }
  if (!grant_.running() || spent_) return 0;
  if (active_ == 0 && !Activate(now_ns)) return 0;
  if (grant_.phase == Phase::kOpen) return Portion(kOpenBudgetNs);
  return AskSlice(now_ns);
}

// The rule of a slice: an operation begins while at least half of it still lies in the slice. The
// first one always begins, or an operation that is longer than a slice would never run.
uint64_t Turn::AskSlice(uint64_t now_ns) {
  const uint64_t elapsed = now_ns - std::min(grant_.start_ns, now_ns);
  const uint64_t others = OthersInFlight();
  const bool first = !used_ && others == 0 && elapsed < grant_.slice_ns;
  if (!first && elapsed + others + kernel_ns_ / 2 > grant_.slice_ns) {
    Want(now_ns);
    gate().near_end_gen.store(active_);
    gate().spent_gen.store(active_);
    spent_ = true;
    Drop(true);
    return 0;
  }
  if (others != 0 && others + kernel_ns_ > kSharedBudgetNs) return 0;
  used_ = true;
  return finish_ != nullptr ? Portion(kSharedBudgetNs) : 1;
}

// Operations that the device may have at once. What is complete when it returns needs no bound.
uint64_t Turn::Portion(uint64_t budget_ns) const {
  if (finish_ == nullptr) return kMany;
  if (kernel_ns_ == 0) return kUnmeasured;
  return std::clamp<uint64_t>(budget_ns / kernel_ns_, 1, kMany);
}

// Works under the grant from now on, if the page still has it.
bool Turn::Activate(uint64_t now_ns) {
  gate().near_end_gen.store(0);
  gate().spent_gen.store(0);
  gate().alive_ns.store(now_ns);
  gate().active_gen.store(grant_.generation);
  const Grant found = ReadGrant(page_);
  if (!found.running() || found.generation != grant_.generation) {
    gate().active_gen.store(0);
    // The loop may have seen the worker as active, and then waits for it.
    Signal();
    return false;
  }
  grant_ = found;
  active_ = found.generation;
  used_ = false;
  return true;
}

int64_t Turn::Admit(uint64_t count, uint64_t now_ns) {
  NoLongerHeld(now_ns);
  granted_ = count;
  since_ns_ = begun_ns_ = now_ns;
  running_ = true;
  charges_ = grant_.phase != Phase::kOff;
  ready_.store(stale_ ? 0 : grant_.futex, std::memory_order_relaxed);
  gate().alive_ns.store(now_ns, std::memory_order_relaxed);
  const uint64_t counted = finish_ != nullptr ? count : 1;
  gate().in_flight_ns.store(charges_ ? counted * kernel_ns_ : 0, std::memory_order_relaxed);
  WatchAt(now_ns + kBusyLookNs);
  return static_cast<int64_t>(count);
}

// An operation is held back: the token loop is told that the session wants the device.
void Turn::Want(uint64_t now_ns) {
  if (held_since_ns_ != 0) return;
  held_since_ns_ = now_ns;
  const uint64_t kernel_us = std::min(kernel_ns_ / base::kMicrosecond, kMostKernelUs);
  gate().kernel_us.store(static_cast<uint32_t>(kernel_us));
  gate().wants.store(1);
  // Under a grant there is nothing to ask for; the loop hears when the grant is over.
  if (active_ == 0) Signal();
}

void Turn::NoLongerHeld(uint64_t now_ns) {
  if (held_since_ns_ == 0) return;
  gate().held_back_ns.fetch_add(now_ns - std::exchange(held_since_ns_, 0));
  gate().wants.store(0);
  // A grant that is on its way finds nobody who wants it.
  if (active_ == 0) Signal();
}

// The token goes back. `tell`: the token loop waits for it.
void Turn::Drop(bool tell) {
  ready_.store(0, std::memory_order_relaxed);
  active_ = 0;
  gate().drained_ns.store(drained_ns_);
  gate().active_gen.store(0);
  if (tell) Signal();
}

void Turn::Signal() {
  const uint64_t one = 1;
  // A counter that is full has been signalled already.
  if (write(signal_.get(), &one, sizeof one) < 0) return;
}

uint64_t Turn::OthersInFlight() const {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < kSlots; ++i) {
    if (i != slot_) sum += page_->slots[i].gate.in_flight_ns.load(std::memory_order_relaxed);
  }
  return sum;
}

uint64_t Turn::Workers() const {
  const auto taken = [](const Slot& slot) { return slot.session.load() != 0; };
  return std::max<uint64_t>(1, static_cast<uint64_t>(std::ranges::count_if(page_->slots, taken)));
}

void Turn::Watch() {
  std::unique_lock lock(mutex_);
  while (!ended_) {
    const uint64_t now = base::NowNs();
    Look(now);
    if (active_ != 0) gate().alive_ns.store(now, std::memory_order_relaxed);
    const uint64_t uncharged =
        running_ ? now - since_ns_ - std::min(charged_ns_, now - since_ns_) : 0;
    if (uncharged >= kLongKernelNs) {
      Charge(uncharged);
      charged_ns_ += uncharged;
    }
    if (idle() && now >= left_ns_ + kGraceNs) {
      Settle(spare_);
      Drop(grant_.phase != Phase::kOpen || !SameGrant(page_, grant_));
    }
    const uint64_t sleep_ns = WatcherSleepNs(now);
    watcher_wakes_ns_ = now + sleep_ns;
    left_seen_ns_ = left_ns_;
    if (sleep_ns == kNever) {
      watcher_.wait(lock);
    } else {
      watcher_.wait_for(lock, std::chrono::nanoseconds(sleep_ns));
    }
  }
}

uint64_t Turn::WatcherSleepNs(uint64_t now_ns) {
  if (idle()) return left_ns_ + kGraceNs - std::min(now_ns, left_ns_ + kGraceNs - 1);
  // The worker leaves often: waking this thread each time would cost more than its own waking.
  if (active_ != 0 && left_ns_ != left_seen_ns_) return kGraceNs;
  const bool recently = running_ || now_ns - begun_ns_ < base::kSecond;
  return recently ? kBusyLookNs : kNever;
}

void Turn::WatchAt(uint64_t at_ns) {
  if (watcher_wakes_ns_ > at_ns + kGraceNs) watcher_.notify_one();
}

}  // namespace rgpu::lease
