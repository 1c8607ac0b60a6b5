#include "rgpu_server/executor/gate.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/transport/transport.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/gate_times.h"

namespace rgpu::exec {

namespace {

using base::kMicrosecond;
using base::kMillisecond;
using base::kSecond;
using lease::Phase;

// On the device at once while others wait: what the next one waits for at most, besides one kernel.
constexpr uint64_t kSharedBudgetNs = 5 * kMillisecond;
// While nobody waits: enough that the device never runs dry between two looks of the poller.
constexpr uint64_t kOpenBudgetNs = 20 * kMillisecond;
// A queue of the driver's that does not move must not fill up with markers.
constexpr size_t kMostMarkers = 64;

}  // namespace

Gate::Gate(Executor& executor, lease::Page* page, uint32_t slot, base::UniqueFd signal)
    : executor_(executor),
      page_(page),
      slot_(slot),
      signal_(std::move(signal)),
      clock_(executor.driver()) {}

void Gate::Start(transport::Connection* lane, const Links* links) {
  lane_ = lane;
  links_ = links;
  if (!signal_.valid()) return;
  NeedThread("rgpu-grants", [this] { WatchGrants(); });
  NeedThread("rgpu-gate", [this] { WatchDevice(); });
}

void Gate::LinkIsBack() {
  const std::lock_guard lock(executor_.mutex());
  WakeHeld();
}

bool Gate::Admits(uint64_t ns) {
  if (suspended() && executor_.sticky() == CUDA_SUCCESS) return false;
  if (!lease::SameGrant(page_, grant_)) Look();
  if (grant_.phase == Phase::kOff || executor_.sticky() != CUDA_SUCCESS) return true;
  // What goes on in a stream is many of them.
  if (kernel_ns_ == 0 || !in_stream_) kernel_ns_ = kernel_ns_ == 0 ? ns : (kernel_ns_ * 7 + ns) / 8;
  if (stale_) {
    if (FitsAlone(ns)) return true;
  } else if (grant_.running() && Enter() && Fits(ns)) {
    return true;
  }
  if (MayBeStuck() && patience_.LetsThrough(base::NowNs(), kernel_ns_)) return true;
  Want();
  return false;
}

// Whether work that is held back may be what the device waits for; under a grant only, and also
// after a recall, at the expense of the lease.
bool Gate::MayBeStuck() const { return active_ != 0 && in_flight_ > 0 && executor_.has_streams(); }

// Says that this worker works under the grant, unless that has gone meanwhile.
bool Gate::Enter() {
  if (active_ == grant_.generation) return true;
  if (active_ != 0) return false;  // an older grant is not given back yet
  const uint64_t entered_ns = base::NowNs();
  gate().alive_ns.store(entered_ns);
  gate().near_end_gen.store(0);
  gate().spent_gen.store(0);
  gate().active_gen.store(grant_.generation);
  // Sequentially consistent on both sides: either the loop sees us, or we see that it took it back.
  if (!lease::SameGrant(page_, grant_)) {
    const lease::Grant now = lease::ReadGrant(page_);
    if (!now.running() || now.generation != grant_.generation) {
      gate().active_gen.store(0);
      return false;
    }
    grant_ = now;
  }
  active_ = grant_.generation;
  used_ = false;
  patience_.Moved(entered_ns);
  SetRoomy();
  return true;
}

// The release rule of a slice: what is on the device is bounded by time, and the last piece starts
// where half of it still lies inside.  The first piece always goes, or long kernels never would.
bool Gate::Fits(uint64_t ns) {
  if (grant_.phase == Phase::kOpen) return in_flight_ == 0 || in_flight_ns_ + ns <= open_budget_ns_;
  const uint64_t in_flight = LeaseInFlight();
  const uint64_t elapsed = base::NowNs() - std::min(grant_.start_ns, base::NowNs());
  const bool first =
      !used_ && in_flight == 0 && elapsed < grant_.slice_ns && (in_stream_ || !MuchAside());
  const bool over = elapsed + in_flight + ns / 2 > grant_.slice_ns;
  if (!first && (over || (aside_.ns > kMostAsideNs && !in_stream_) || MuchAside())) {
    if (gate().near_end_gen.load(std::memory_order_relaxed) != active_) {
      gate().near_end_gen.store(active_);
      Signal();
    }
    // Nothing that could still complete tells us to leave.
    if (in_flight_ == 0) {
      gate().spent_gen.store(active_);
      Leave(true);
    }
    return false;
  }
  if (in_flight != 0 && in_flight + ns > kSharedBudgetNs) return false;
  used_ = true;
  return true;
}

// Without a loop: the lease spends its request, one piece or a few milliseconds at a time.
bool Gate::FitsAlone(uint64_t ns) {
  const uint64_t request = page_->share_request_ppm.load(std::memory_order_relaxed);
  const uint64_t workers = std::max<uint32_t>(lease::ReadDemand(page_, 0).workers, 1);
  if (!own_share_.HasCredit(base::NowNs(), request, workers)) return false;
  return in_flight_ == 0 || in_flight_ns_ + ns <= kSharedBudgetNs;
}

uint64_t Gate::LeaseInFlight() const {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < slots_; ++i) {
    sum += page_->slots[i].gate.in_flight_ns.load(std::memory_order_relaxed);
  }
  return sum;
}

// The budget is the lease's: each of its busy workers gets a part.
void Gate::CountWorkers() {
  uint64_t active = 0;
  for (uint32_t i = 0; i < lease::kSlots; ++i) {
    const lease::Slot& slot = page_->slots[i];
    if (slot.session.load(std::memory_order_relaxed) != 0) slots_ = i + 1;
    active += slot.gate.active_gen.load(std::memory_order_relaxed) != 0 ? 1 : 0;
  }
  slots_ = std::max(slots_, slot_ + 1);
  open_budget_ns_ = kOpenBudgetNs / std::max<uint64_t>(active, 1);
}

void Gate::SetHolding(bool holding) {
  if (holding_ == holding) return;
  holding_ = holding;
  if (!holding) NoLongerHeld();
}

void Gate::NoLongerHeld() {
  if (holding_ || awaiting_ > 0 || held_since_ns_ == 0) return;
  gate().held_back_ns.fetch_add(base::NowNs() - held_since_ns_, std::memory_order_relaxed);
  held_since_ns_ = 0;
  gate().wants.store(0);
  // A grant that came too late is not waited for.
  if (active_ == 0) Signal();
}

void Gate::Want() {
  if (held_since_ns_ == 0) {
    held_since_ns_ = base::NowNs();
    patience_.Begin(held_since_ns_);
  }
  if (gate().wants.load(std::memory_order_relaxed) == 0) {
    gate().kernel_us.store(static_cast<uint32_t>(std::min(kernel_ns_ / kMicrosecond, kSecond)));
    gate().wants.store(1);
    // Under a grant nothing need be asked for; the loop hears when that is over.
    if (active_ == 0) Signal();
  }
  WakeThread();
}

CUresult Gate::Await(uint64_t ns) {
  if ((!scheduled() && !suspended()) || Admits(ns)) return executor_.sticky();
  executor_.role().Yield();
  ++awaiting_;
  std::unique_lock lock(executor_.mutex(), std::adopt_lock);
  while (executor_.sticky() == CUDA_SUCCESS && !Admits(ns)) {
    opened_.wait_for(lock, std::chrono::milliseconds(100));
  }
  lock.release();
  --awaiting_;
  NoLongerHeld();
  return executor_.sticky();
}

void Gate::AwaitInStream(uint64_t ns) {
  if (!on()) return;
  WaitInStream([this, ns] { return AdmitsInStream(ns); });
  Spent(ns);
}

void Gate::Spent(uint64_t ns) {
  page_->slots[slot_].busy_ns.fetch_add(ns, std::memory_order_relaxed);
}

void Gate::Issued(Stream& stream, const std::shared_ptr<Estimate>& kind, uint64_t units) {
  if (!scheduled()) return;
  if (stream.unmarked_load.empty()) {
    stream.unmarked_since_ns = base::NowNs();
    stream.unmarked_behind = stream.behind;
    if (in_flight_ == 0) {
      counted_ns_ = stream.unmarked_since_ns;
    } else {
      stream.before_unmarked = nullptr;
    }
    unmarked_.push_back(stream.shared_from_this());
  }
  in_flight_ns_ += stream.unmarked_load.Add(kind, units);
  ++in_flight_;
  gate().in_flight_ns.store(in_flight_ns_, std::memory_order_relaxed);
  SetRoomy();
}

void Gate::SetRoomy() {
  const bool roomy = !stale_ && grant_.phase == Phase::kOpen && active_ == grant_.generation &&
                     active_ != 0 && HasRoom();
  roomy_.store(roomy ? grant_.futex : 0, std::memory_order_relaxed);
}

void Gate::Marked(Stream& stream, const std::shared_ptr<Point>& point) {
  std::erase_if(unmarked_, [&](const auto& other) { return other.get() == &stream; });
  points_.push_back(point);
  if (!alone()) WakeThread();
}

void Gate::Completed(Stream& stream, const Marker& marker) {
  if (marker.load.empty()) return;
  const uint64_t done = clock_.DoneNs(marker.point);
  if (stream.aside.count != 0) RanAside(stream, done - std::min(done, marker.load.ns()));
  uint64_t began = marker.since_ns;
  if (marker.before != nullptr) {
    began = clock_.BeganNs(*marker.before, *marker.point, done, began);
    counted_ns_ = std::max(counted_ns_, began);
  }
  const uint64_t from = std::max(last_done_ns_, began);
  if (done > from) marker.load.Measured(done - from);
  last_done_ns_ = std::max(last_done_ns_, done);
  patience_.Moved(marker.point->done_ns);
  CountBusy(done);
  in_flight_ -= std::min<uint64_t>(in_flight_, marker.load.pieces());
  in_flight_ns_ -= std::min(in_flight_ns_, marker.load.ns());
  if (in_flight_ == 0) in_flight_ns_ = 0;
  gate().in_flight_ns.store(in_flight_ns_, std::memory_order_relaxed);
  while (!points_.empty() && points_.front()->done) points_.pop_front();
  SetRoomy();
  if (in_flight_ == 0 && active_ != 0) {
    gate().drained_ns.store(last_done_ns_);
    if (grant_.phase == Phase::kOpen && lease::SameGrant(page_, grant_)) {
      Leave(false);
    } else {
      WakeThread();  // it sees that the grace passes
      Look();
    }
  }
  // Alone, what is held back goes in few large parts: each wakes two threads.
  if (!alone() || stale_ || HasRoom()) WakeHeld();
}

void Gate::CountBusy(uint64_t until_ns) {
  if (until_ns <= counted_ns_) return;
  const uint64_t busy = until_ns - counted_ns_;
  counted_ns_ = until_ns;
  page_->slots[slot_].busy_ns.fetch_add(busy, std::memory_order_relaxed);
  if (stale_) own_share_.Spend(busy);
}

void Gate::Forget(Stream& stream) {
  TakeBack(stream, base::NowNs());
  Load load = std::exchange(stream.unmarked_load, {});
  for (Marker& marker : stream.outstanding) load.Add(std::exchange(marker.load, {}));
  std::erase_if(unmarked_, [&](const auto& other) { return other.get() == &stream; });
  clock_.Forget();  // its context goes, too
  if (load.empty()) return;
  Marker gone;
  gone.load = load;
  gone.point = std::make_shared<Point>(nullptr, 0);
  gone.point->done = true;
  gone.point->done_ns = base::NowNs();
  gone.since_ns = gone.point->done_ns;  // says nothing about how long it took
  Completed(stream, gone);
}

void Gate::MarkRest() {
  if (unmarked_.empty()) return;
  std::vector<std::shared_ptr<Stream>> streams;
  streams.swap(unmarked_);
  for (const auto& stream : streams) {
    if (stream->unmarked_load.empty()) continue;
    if (stream->outstanding.size() >= kMostMarkers) {  // the next look comes when they are fewer
      unmarked_.push_back(stream);
      continue;
    }
    if (executor_.MakeCurrent(*stream->context) == CUDA_SUCCESS) executor_.MarkNow(*stream);
  }
}

void Gate::Alive() {
  if (active_ != 0) gate().alive_ns.store(base::NowNs(), std::memory_order_relaxed);
}

// The token goes back; `tell`: the loop waits for it.
void Gate::Leave(bool tell) {
  if (active_ == 0) return;
  active_ = 0;
  gate().active_gen.store(0);
  SetRoomy();
  if (tell) Signal();
}

void Gate::WakeHeld() {
  if (holding_ && lane_ != nullptr) lane_->Wake();
  if (awaiting_ > 0) {
    opened_.notify_all();
    WakeInStreams();
  }
}

void Gate::Signal() {
  const uint64_t one = 1;
  // A counter that is full has been signalled already.
  if (write(signal_.get(), &one, sizeof one) < 0) return;
}

}  // namespace rgpu::exec
