#include "rgpu_server/executor/gate.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "rgpu_common/native/base/log.h"
#include "rgpu_common/native/transport/transport.h"
#include "rgpu_server/executor/executor.h"

namespace rgpu::exec {

namespace {

// A driver's queue that does not move must not fill up with markers.
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
  LookAtSession();
}

bool Gate::Ask(event::Asked asked) {
  LookAtSession();
  if (!SameWord()) Look();
  if (state_.grant().phase == lease::Phase::kSlice) asked.others_ns = OthersInFlight();
  if (state_.active() && !state_.idle()) asked.has_streams = executor_.objects().has_streams();
  GateActions answer = state_.Handle(asked, base::NowNs());
  Act(answer);
  if (answer.enter) {
    // Both sides are sequentially consistent: either the token loop sees that this worker is
    // active, or this worker sees that the loop has taken the grant back.
    answer = state_.Handle(event::Entered{lease::ReadGrant(page_)}, base::NowNs());
    Act(answer);
  }
  return answer.admit;
}

// Tells the state what has become of the session and of its connection.
void Gate::LookAtSession() {
  if (notes_.any()) TakeNotes();
  if (!state_.failed() && executor_.sticky() != CUDA_SUCCESS) Tell(event::Failed{});
  if (const bool lost = suspended(); lost != state_.link_lost()) {
    if (lost) {
      Tell(event::LinkLost{});
    } else {
      Tell(event::LinkBack{});
    }
  }
}

void Gate::Look() {
  LookAtSession();
  event::Looked looked{.grant = lease::ReadGrant(page_)};
  looked.heartbeat_ns = page_->token.heartbeat_ns.load(std::memory_order_relaxed);
  looked.request_ppm = page_->share_request_ppm.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < lease::kSlots; ++i) {
    const lease::Slot& slot = page_->slots[i];
    if (slot.session.load(std::memory_order_relaxed) != 0) {
      ++looked.workers;
      slots_ = i + 1;
    }
    looked.active_workers += slot.gate.active_gen.load(std::memory_order_relaxed) != 0 ? 1 : 0;
  }
  slots_ = std::max(slots_, slot_ + 1);
  Alive();
  TakeNotes([&] { return state_.Handle(looked, base::NowNs()); });
}

template <typename Decide>
void Gate::TakeNotes(Decide decide) {
  GateActions actions;
  notes_.Settle(
      [&](const auto& note, uint64_t now_ns) {
        std::visit([&](const auto& one) { actions |= state_.Handle(one, now_ns); }, note);
      },
      [&] {
        actions |= decide();
        return state_.any_aside();
      });
  Act(actions);
}

void Gate::TakeNotes() {
  TakeNotes([] { return GateActions{}; });
}

void Gate::Act(const GateActions& actions) {
  if (actions.charged_ns != 0) {
    page_->slots[slot_].busy_ns.fetch_add(actions.charged_ns, std::memory_order_relaxed);
  }
  Publish();
  if (!state_.any_aside()) notes_.NothingAside();
  if (actions.signal) Signal();
  if (actions.wake_held) WakeHeld();
  if (actions.wake_watcher) WakeThread();
  if (actions.hurry) executor_.poller().Hurry();
  // CUDA forbids calls of the driver in a host function.  The threads of the gate look again.
  if (!in_stream_) ActOnDriver(actions);
  if (actions.look) Look();
}

void Gate::ActOnDriver(const GateActions& actions) {
  if (actions.mark) MarkRest();
  if (!actions.ask_driver) return;
  if (!WorkStillRuns()) {
    Tell(event::Stopped{});
    points_.clear();
  } else if (actions.overdue) {
    // The end of the process stops the work on every driver.
    base::Log(base::Level::kError, "work of a session that has failed does not stop; it is ended");
    _exit(1);
  }
}

// Writes what has changed to the slot, and active_gen last: the loop then finds the rest there.
// Most launches change one word, and a store that is sequentially consistent costs as much as the
// rest.
void Gate::Publish() {
  const SlotImage& image = state_.slot();
  lease::SlotGate& slot = gate();
  roomy_.store(state_.roomy() ? state_.grant().futex : 0, std::memory_order_relaxed);
  slot.in_flight_ns.store(image.in_flight_ns, std::memory_order_relaxed);
  const auto put = [](auto& word, auto value, auto& published) {
    if (value == published) return;
    word.store(value);
    published = value;
  };
  put(slot.near_end_gen, image.near_end_gen, published_.near_end_gen);
  put(slot.spent_gen, image.spent_gen, published_.spent_gen);
  put(slot.kernel_us, image.kernel_us, published_.kernel_us);
  put(slot.wants, image.wants, published_.wants);
  put(slot.held_back_ns, image.held_back_ns, published_.held_back_ns);
  put(slot.drained_ns, image.drained_ns, published_.drained_ns);
  if (image.active_gen == published_.active_gen) return;
  if (image.active_gen != 0) slot.alive_ns.store(base::NowNs());
  put(slot.active_gen, image.active_gen, published_.active_gen);
}

uint64_t Gate::OthersInFlight() const {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < slots_; ++i) {
    if (i == slot_) continue;
    sum += page_->slots[i].gate.in_flight_ns.load(std::memory_order_relaxed);
  }
  return sum;
}

CUresult Gate::Await(uint64_t ns) {
  if ((!state_.scheduled() && !suspended()) || Admits(ns)) return executor_.sticky();
  executor_.role().Yield();
  Tell(event::AwaitBegan{});
  std::unique_lock lock(executor_.mutex(), std::adopt_lock);
  while (executor_.sticky() == CUDA_SUCCESS && !Admits(ns)) {
    opened_.wait_for(lock, std::chrono::milliseconds(100));
  }
  lock.release();
  Tell(event::AwaitEnded{});
  return executor_.sticky();
}

void Gate::Spent(uint64_t ns) {
  page_->slots[slot_].busy_ns.fetch_add(ns, std::memory_order_relaxed);
}

void Gate::Issued(Stream& stream, const std::shared_ptr<Estimate>& kind, uint64_t units) {
  const bool first = stream.unmarked_load.empty();
  if (first && !state_.idle()) stream.before_unmarked = nullptr;
  // The time is only used for the first piece behind a marker.
  const uint64_t now = first ? base::NowNs() : stream.unmarked_since_ns;
  Tell(event::Issued{stream, stream.context->order, kind, units}, now);
}

uint64_t Gate::Marked(Stream& stream, const std::shared_ptr<Point>& point) {
  points_.emplace_back(state_.last_marker() + 1, point);
  Tell(event::Marked{stream});
  return points_.back().first;
}

void Gate::Completed(Stream& stream, const Marker& marker) {
  event::Completed completed{stream, marker.work, 0, 0, marker.point->done_ns, SameWord()};
  completed.done_ns = clock_.DoneNs(marker.point);
  if (marker.before != nullptr) {
    completed.began_ns = clock_.BeganNs(*marker.before, *marker.point, completed.done_ns, 0);
  }
  while (!points_.empty() && points_.front().second->done) points_.pop_front();
  Tell(completed);
}

void Gate::Forget(Stream& stream) {
  clock_.Forget();  // its point goes with the context
  Tell(event::Forgotten{stream, SameWord()});
}

void Gate::MarkRest() {
  if (state_.unmarked().empty()) return;
  const std::vector<std::shared_ptr<StreamWork>> unmarked = state_.unmarked();
  for (const auto& work : unmarked) {
    Stream& stream = static_cast<Stream&>(*work);
    if (stream.unmarked_load.empty()) continue;
    if (stream.outstanding.size() >= kMostMarkers) continue;  // later, when they are fewer
    if (executor_.MakeCurrent(*stream.context) == CUDA_SUCCESS) executor_.order().MarkNow(stream);
  }
}

void Gate::Alive() {
  if (state_.active()) gate().alive_ns.store(base::NowNs(), std::memory_order_relaxed);
}

void Gate::WakeHeld() {
  if (state_.holding() && lane_ != nullptr) lane_->Wake();
  opened_.notify_all();
  notes_.WakeAll();
}

void Gate::Signal() {
  const uint64_t one = 1;
  // A counter that is full has been signalled already.
  if (write(signal_.get(), &one, sizeof one) < 0) return;
}

}  // namespace rgpu::exec
