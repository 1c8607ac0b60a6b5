// Client waits: the device is not kept for work that cannot run.
//
// A network may be slow, and a client may be stopped.  A stream of the client then stands in a
// client wait (client_waits.h), and nothing that was released behind it can run: in this stream, in
// streams that wait for its events, and in streams that the device orders behind it.  If that is
// all a session has on the device, it is *set aside*: it does not count as on the device and the
// token goes back.  Before the stream goes on, its host function asks for the token again, so that
// no kernel runs without it.
//
// A stream can also wait for a value in memory (cuStreamWaitValue32).  That is the same, with a
// halt directly behind the wait in place of the host function.  The stream counts as standing in
// the wait from when the driver has it: work behind a wait that the stream has not reached cannot
// run either. One thing differs: the value may be written by work of the session itself, which the
// gate holds back.  So such a session may always add to what is set aside, if only a piece now and
// then. A graph that waits for a value has a halt before the wait, too: from there it stands.
//
// A session that is alone keeps the token in any case. There the time is only not charged.
#include <algorithm>
#include <iterator>
#include <utility>

#include "rgpu_server/executor/gate/limits.h"
#include "rgpu_server/executor/gate/state.h"

namespace rgpu::exec {

namespace {

// The part of the stream's work that comes behind a stream which stands in a client wait since
// before `ns`, without the part that is set aside already.
Pieces BehindStanding(const StreamWork& stream, uint64_t ns) {
  Pieces found;
  bool behind = false;
  for (const MarkedWork& work : stream.marked) {
    behind = behind || work.behind.Stand(ns);
    if (behind) found += {work.load.pieces(), work.load.ns()};
  }
  behind = behind || stream.BehindMarker(stream.unmarked_behind).Stand(ns);
  if (behind) found += {stream.unmarked_load.pieces(), stream.unmarked_load.ns()};
  found -= stream.aside;
  return found;
}

// The places that the stream's oldest work comes behind.
WaitPlaces BehindFirst(const StreamWork& stream) {
  if (!stream.marked.empty()) return stream.marked.front().behind;
  return stream.BehindMarker(stream.unmarked_behind);
}

}  // namespace

void GateState::On(const event::WaitBegan& began, uint64_t now_ns) {
  CountStanding(now_ns);
  began.place.of->in = began.place.number;
  began.place.of->since_ns = now_ns;
  began.place.of->for_value = began.for_value;
  standing_.push_back(began.place.of);
}

void GateState::On(const event::WaitEnded& ended, uint64_t now_ns) {
  CountStanding(now_ns);
  ended.place.of->since_ns = 0;
  std::erase(standing_, ended.place.of);
}

void GateState::On(const event::WaitPassed& passed, uint64_t) {
  passed.place.of->over = std::max(passed.place.of->over, passed.place.number);
}

// From now on the stream counts as standing in the wait, until the halt behind it says otherwise.
void GateState::On(const event::ValueWaitLaunched& launched, uint64_t now_ns) {
  CountStanding(now_ns);
  ClientWaits& waits = *launched.place.of;
  waits.last = waits.in = launched.place.number;
  waits.since_ns = now_ns;
  waits.for_value = true;
  waits.for_value_in = &launched.stream;
  standing_.push_back(launched.place.of);
  launched.stream.behind.Add(launched.place);
  launched.stream.OrderWithLegacy(launched.order);
}

// The streams of a context that is gone come to no halt any more.
void GateState::ForgetValueWaits(const StreamWork& stream) {
  std::erase_if(standing_, [&](const auto& waits) {
    const bool of_graph = waits == stream.waits && waits->for_value;
    if (waits->for_value_in != &stream && !of_graph) return false;
    waits->over = waits->last;
    waits->since_ns = 0;
    return true;
  });
}

// True if all work that counts as on the device comes behind streams that stand in a client wait
// since before `before_ns`.
bool GateState::AllStand(uint64_t before_ns) const {
  uint64_t count = 0;
  for (const auto& stream : work_.streams()) count += BehindStanding(*stream, before_ns).count;
  return count >= work_.in_flight().count;
}

// A session that is alone keeps the token while all of its work stands behind client waits, because
// nobody else wants the device. The device does nothing then, so the time is not charged, and is no
// measurement of the work. Returns true if all work stands.
bool GateState::CountStanding(uint64_t now_ns) {
  if (standing_.empty() || active_ == 0 || work_.empty() || !alone()) return false;
  if (!AllStand(now_ns)) return false;
  uint64_t since_ns = 0;
  for (const auto& waits : standing_) since_ns = std::max(since_ns, waits->since_ns);
  work_.StoodStill(since_ns, now_ns);
  return true;
}

// Sets aside the work behind streams that have stood in a client wait for long, if the session has
// no other work on the device.
void GateState::SetAside(uint64_t now_ns) {
  if (active_ == 0 || work_.empty() || alone()) return;
  const uint64_t since_ns = now_ns - std::min(kClientNs, now_ns);
  for (const auto& waits : standing_) {
    // A stream may have come to its wait, or the value been written, only with the last work.
    if (waits->for_value_in == nullptr) continue;
    waits->since_ns = std::max(waits->since_ns, work_.last_done_ns());
  }
  const auto stands_long = [=](const auto& waits) { return waits->since_ns < since_ns; };
  if (std::ranges::none_of(standing_, stands_long)) return;
  std::vector<std::pair<std::shared_ptr<StreamWork>, Pieces>> found;
  uint64_t count = 0;
  for (const auto& stream : work_.streams()) {
    const Pieces behind = BehindStanding(*stream, since_ns);
    if (behind.count == 0) continue;
    count += behind.count;
    found.emplace_back(stream, behind);
  }
  if (count < work_.in_flight().count) return;
  for (const auto& [stream, pieces] : found) {
    if (stream->aside.count == 0) aside_.push_back(stream);
    stream->aside += pieces;
    aside_pieces_ += pieces;
    work_.PutAside(*stream);
  }
  // Until now the session kept the device from others.
  work_.CountBusy(now_ns);
  work_.SetNothingInFlight();
  slot_.drained_ns = now_ns;
  // The thread that waits for the device may be waiting for one of these streams.
  actions_.hurry = true;
}

// The stream's work that was set aside counts as on the device from now on.
void GateState::TakeBack(StreamWork& stream, uint64_t now_ns) {
  if (stream.aside.count == 0) return;
  const Pieces back = std::exchange(stream.aside, {});
  aside_pieces_ -= back;
  std::erase_if(aside_, [&](const auto& other) { return other.get() == &stream; });
  work_.TakeBack(stream, back, now_ns);
  actions_.wake_watcher = true;
}

bool GateState::MuchAside() const {
  return aside_pieces_.ns > kMuchAsideNs || aside_pieces_.count > kMuchAsideCount;
}

bool GateState::WaitsForValue() const {
  return std::ranges::any_of(standing_, [](const auto& waits) { return waits->for_value; });
}

// True if one more piece may go to the device, although it may be set aside there.
bool GateState::MayAddToAside(uint64_t now_ns) {
  return !MuchAside() || (WaitsForValue() && aside_patience_.LetsThrough(now_ns, kernel_ns_));
}

// Streams whose work was set aside behind `waits`, and runs when that stream goes on.
std::vector<std::shared_ptr<StreamWork>> GateState::Returning(const ClientWaits* waits) const {
  std::vector<std::shared_ptr<StreamWork>> streams;
  std::ranges::copy_if(aside_, std::back_inserter(streams), [waits](const auto& stream) {
    const WaitPlaces behind = BehindFirst(*stream);
    return behind.HasOneOf(waits) && !behind.Stand(UINT64_MAX);
  });
  return streams;
}

// The stream of `waits` goes on, and all streams that came behind it.
void GateState::Return(const ClientWaits* waits, uint64_t now_ns) {
  const auto streams = Returning(waits);
  if (streams.empty()) return;
  for (const auto& stream : streams) TakeBack(*stream, now_ns);
  aside_patience_.Moved(now_ns);
  work_.WaitedUntil(now_ns);
  WakeHeld();
}

void GateState::On(const event::WentOn& went_on, uint64_t now_ns) {
  if (went_on.awaited) --awaiting_;
  NoLongerHeld(now_ns);
  if (went_on.waits != nullptr) Return(went_on.waits.get(), now_ns);
}

}  // namespace rgpu::exec
