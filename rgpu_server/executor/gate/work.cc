// Work: what the driver has taken, and what is complete.
#include <algorithm>

#include "rgpu_server/executor/gate/limits.h"
#include "rgpu_server/executor/gate/state.h"

namespace rgpu::exec {

void GateState::On(const event::Issued& issued, uint64_t now_ns) {
  if (!standing_.empty() && now_ns >= standing_looked_ns_ + kStandingLookNs) {
    standing_looked_ns_ = now_ns;
    CountStanding(now_ns);
  }
  issued.stream.OrderWithLegacy(issued.order);
  if (scheduled()) work_.Issue(issued.stream, issued.kind, issued.units, now_ns);
}

void GateState::On(const event::Marked& marked, uint64_t) {
  work_.Mark(marked.stream);
  if (!alone()) actions_.wake_watcher = true;
}

void GateState::On(const event::Completed& completed, uint64_t) {
  StreamWork& stream = completed.stream;
  const auto work = work_.Take(stream, completed.marker);
  if (!work) return;
  const uint64_t done = completed.done_ns;
  if (stream.aside.count != 0) {
    // The work ran although it was set aside, because its stream went on without the lock.  The
    // time in which the stream stood still is no part of the measurement.
    const uint64_t began = done - std::min(done, work->load.ns());
    TakeBack(stream, began);
    work_.WaitedUntil(began);
  }
  work_.Complete(*work, completed.began_ns, done);
  patience_.Moved(completed.found_ns);
  AfterCompletion(completed.same_word);
}

void GateState::On(const event::Forgotten& forgotten, uint64_t now_ns) {
  ForgetValueWaits(forgotten.stream);
  TakeBack(forgotten.stream, now_ns);
  MarkedWork gone;
  gone.load = work_.TakeAll(forgotten.stream);
  if (gone.load.empty()) return;
  gone.since_ns = now_ns;  // not a measurement
  work_.Complete(gone, 0, now_ns);
  patience_.Moved(now_ns);
  AfterCompletion(forgotten.same_word);
}

void GateState::AfterCompletion(bool same_word) {
  if (work_.empty() && active_ != 0) {
    slot_.drained_ns = work_.last_done_ns();
    if (grant_.phase == lease::Phase::kOpen && same_word) {
      Leave(false);
    } else {
      actions_.wake_watcher = true;  // the thread sees when the grace is over
      actions_.look = true;
    }
  }
  // Alone, held work goes in few large parts, because each of them wakes two threads.
  if (!alone() || stale_ || HasRoom()) WakeHeld();
}

GateState::MarkFirst GateState::MustMark(const StreamWork& stream, const WaitPlaces& next) {
  if (stream.behind.Covers(next)) return MarkFirst::kNothing;
  // All blocking streams come behind the same places with their next work.
  if (stream.legacy) return MarkFirst::kAllStreams;
  return stream.unmarked_load.empty() ? MarkFirst::kNothing : MarkFirst::kStream;
}

void GateState::On(const event::WaitLaunched& launched, uint64_t) {
  StreamWork& stream = launched.stream;
  stream.behind.Add({stream.waits, ++stream.waits->last});
  stream.OrderWithLegacy(launched.order);
}

void GateState::On(const event::OrderedBehind& ordered, uint64_t) {
  ordered.stream.behind.Merge(ordered.behind);
  if (ordered.stream.legacy) ordered.order.behind_legacy.Merge(ordered.behind);
}

}  // namespace rgpu::exec
