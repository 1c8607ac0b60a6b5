// The model's sessions: the program, the shell of the gate, and the device's side.
#include "tests/native/gate_model.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "rgpu_common/native/base/clock.h"
#include "tests/native/testing.h"

namespace rgpu::exec::model {

namespace {

using base::kMicrosecond;
using base::kMillisecond;
using lease::Phase;

// Stream 0 is the legacy stream, 1 and 2 wait for it, 3 and 4 do not.
constexpr size_t kStreams = 5;
constexpr size_t kFirstFree = 3;
constexpr size_t kKernels = 4;
constexpr uint64_t kMarkEvery = 8;
constexpr uint64_t kMarkNs = kMillisecond;
constexpr uint64_t kPollNs = 500 * kMicrosecond;

}  // namespace

Session::Session(World& world, size_t commands) : world_(world), queues_(kStreams) {
  for (size_t i = 0; i < kStreams; ++i) {
    streams_.push_back(std::make_shared<StreamWork>());
    streams_.back()->legacy = i == 0;
    streams_.back()->blocking = i < kFirstFree;
  }
  constexpr uint64_t kFirstGuessNs = 2'500'000;
  for (size_t i = 0; i < kKernels; ++i) {
    kernels_.push_back(std::make_shared<Estimate>(static_cast<double>(kFirstGuessNs)));
    kernel_ns_.push_back(world_.Random(20, world_.Chance(4) ? 20'000 : 3'000) * kMicrosecond);
  }
  page_.phase = Phase::kNone;
  MakeProgram(commands);
  world_.After(world_.Random(0, 5 * kMillisecond), [this] { Decode(); });
  WatchGrants();
  if (world_.Chance(3)) world_.After(world_.Random(1, 200) * kMillisecond, [this] { LosesLink(); });
}

void Session::MakeProgram(size_t commands) {
  size_t value = 0;
  while (program_.size() < commands) {
    program_.push_back(MakeCommand());
    if (!world_.Chance(25)) continue;
    // One stream waits for what another one writes later.
    program_.push_back({.kind = Command::Kind::kWaitValue, .stream = kFirstFree, .number = value});
    for (uint64_t i = world_.Random(0, 6); i > 0; --i) {
      program_.push_back({.stream = kFirstFree, .ns = kernel_ns_[0]});
    }
    program_.push_back({.kind = Command::Kind::kWriteValue,
                        .stream = kFirstFree + 1,
                        .ns = kernel_ns_[1],
                        .number = value++});
  }
}

Command Session::MakeCommand() {
  Command command;
  command.stream = world_.Random(0, kStreams - 1);
  command.number = world_.Random(0, kKernels - 1);
  switch (world_.Random(0, 11)) {
    case 0:
      command.kind = Command::Kind::kClientWait;
      command.ns = world_.Random(10, world_.Chance(2) ? 2'000 : 60'000) * kMicrosecond;
      return command;
    case 1:
      command.kind = Command::Kind::kRecord;
      return command;
    case 2:
      command.kind = Command::Kind::kWaitEvent;
      return command;
    default:
      command.ns = kernel_ns_[command.number];
      command.ns = std::max<uint64_t>(command.ns * world_.Random(80, 120) / 100, 1);
      return command;
  }
}

bool Session::finished() const {
  return program_.empty() &&
         std::ranges::all_of(queues_, [](const auto& queue) { return queue.empty(); }) &&
         markers_.empty() && state_.unmarked().empty();
}

// --- the decoder

void Session::Decode() {
  for (asleep_ = false; !program_.empty(); program_.pop_front()) {
    if (program_.front().gated() && !Admitted(program_.front())) {
      Tell(event::Holding{true});
      asleep_ = true;
      return;
    }
    Tell(event::Holding{false});
    Issue(program_.front());
    if (!world_.Chance(6)) continue;
    program_.pop_front();
    world_.After(world_.Random(1, 3'000) * kMicrosecond, [this] { Decode(); });
    if (world_.Chance(2)) MarkRest();
    return;
  }
  MarkRest();
}

bool Session::Admitted(const Command& command) {
  return Ask({.ns = kernels_[command.number % kKernels]->Predict(1)});
}

// As StreamOrder::Prepare, LaunchWait, WaitForValue and WaitFor: markers before what orders the
// stream.
void Session::Prepare(const Command& command) {
  if (streams_[command.stream]->legacy) MarkBefore(command.stream, order_.behind_blocking);
  if (command.kind == Command::Kind::kClientWait && streams_[command.stream]->legacy) MarkRest();
  WaitPlaces next = events_[command.number].places;
  if (command.kind == Command::Kind::kWaitValue) {
    next = {};
    next.Add(command.place);
  } else if (command.kind != Command::Kind::kWaitEvent) {
    return;
  }
  MarkBefore(command.stream, next);
}

void Session::MarkBefore(size_t stream, const WaitPlaces& next) {
  switch (GateState::MustMark(*streams_[stream], next)) {
    case GateState::MarkFirst::kAllStreams:
      return MarkRest();
    case GateState::MarkFirst::kStream:
      return Mark(stream);
    default:
      return;
  }
}

void Session::Issue(Command command) {
  StreamWork& stream = *streams_[command.stream];
  command.issued = ++issued_;
  if (command.kind == Command::Kind::kRecord) {
    events_[command.number] = {command.stream, command.issued, stream.behind};
    return;
  }
  if (command.kind == Command::Kind::kWaitValue) {
    command.place = {std::make_shared<ClientWaits>(), 1};
  }
  Prepare(command);
  if (command.kind == Command::Kind::kClientWait) {
    command.place = {stream.waits, stream.waits->last + 1};
  } else if (command.kind == Command::Kind::kWaitEvent) {
    const Recorded& recorded = events_[command.number];
    command.of = recorded.of;
    command.behind = recorded.behind;
  }
  if (command.kind == Command::Kind::kWaitValue) {
    Tell(event::ValueWaitLaunched{stream, order_, command.place});
  }
  queues_[command.stream].push_back(command);
  if (command.kind == Command::Kind::kClientWait) {
    Tell(event::WaitLaunched{stream, order_});
  } else if (command.kind == Command::Kind::kWaitEvent) {
    Tell(event::OrderedBehind{stream, order_, events_[command.number].places});
  } else if (command.gated()) {
    Tell(event::Issued{stream, order_, kernels_[command.number % kKernels], 1});
    const Load& load = stream.unmarked_load;
    if (load.ns() >= kMarkNs || !load.known() || load.pieces() >= kMarkEvery) Mark(command.stream);
  }
  Advance();
}

// --- the shell

template <typename Event>
GateActions Session::Tell(const Event& happened) {
  const GateActions actions = state_.Handle(happened, world_.now());
  Act(actions);
  return actions;
}

bool Session::Ask(event::Asked asked) {
  if (!(state_.grant() == page_)) Look();
  asked.has_streams = true;
  // The loop is another process, and may look at any moment.
  if (world_.Chance(3)) world_.LoopLooks();
  GateActions answer = Tell(asked);
  if (answer.enter) {
    if (world_.Chance(3)) world_.LoopLooks();
    answer = Tell(event::Entered{page_});
  }
  CHECK(answer.admit != answer.hold);
  return answer.admit;
}

void Session::Look() {
  Tell(event::Looked{page_, world_.now(), 1, state_.active() ? 1U : 0U, 500'000});
}

void Session::Act(const GateActions& actions) {
  charged_ns_ += actions.charged_ns;
  slot_ = state_.slot();
  if (actions.signal) world_.Signal();
  if (actions.wake_held) {
    // The woken thread takes its time.
    world_.After(world_.Random(1, 200) * kMicrosecond, [this] {
      if (asleep_) Decode();
      for (size_t i = 0; i < kStreams; ++i) ReturnsToStream(i);
      Advance();
    });
  }
  if (actions.mark) MarkRest();
  if (actions.look) Look();
}

void Session::Granted(const lease::Grant& grant) {
  page_ = grant;
  world_.After(world_.Random(1, 100) * kMicrosecond, [this] { WatchGrants(); });
}

void Session::WatchGrants() {
  if (state_.RunsLong(world_.now())) {
    MarkRest();
    Tell(event::StillRuns{});
  }
  Look();
  Tell(event::Ticked{true});
  world_.After(state_.SleepNs(), [this, wakes = ++wakes_] {
    if (wakes == wakes_) WatchGrants();
  });
}

// The client has no connection for a while, now and then.
void Session::LosesLink() {
  Tell(event::LinkLost{});
  Look();
  world_.After(world_.Random(1, 40) * kMillisecond, [this] {
    Tell(event::LinkBack{});
    world_.After(world_.Random(1, 400) * kMillisecond, [this] { LosesLink(); });
  });
}

void Session::Mark(size_t stream) {
  if (streams_[stream]->unmarked_load.empty()) return;
  Tell(event::Marked{*streams_[stream]});
  markers_.push_back({stream, state_.last_marker(), issued_ + 1});
  if (std::exchange(polls_, true)) return;
  world_.After(world_.Random(1, kPollNs), [this] { Poll(); });
}

void Session::MarkRest() {
  for (size_t i = 0; i < kStreams; ++i) Mark(i);
}

// Somebody finds out what is complete: the poller, or the thread that waits for the device.
void Session::Poll() {
  polls_ = false;
  std::deque<Marker> left;
  std::set<size_t> behind;
  for (const Marker& marker : std::exchange(markers_, {})) {
    if (behind.contains(marker.stream) || CompleteTo(marker.stream) < marker.behind) {
      behind.insert(marker.stream);
      left.push_back(marker);
      continue;
    }
    const bool same = state_.grant() == page_;
    Tell(event::Completed{*streams_[marker.stream], marker.number, 0, world_.now(), world_.now(),
                          same});
  }
  markers_.insert(markers_.begin(), left.begin(), left.end());
  if (state_.in_grace()) world_.After(450 * kMicrosecond, [this] { Look(); });
  if (markers_.empty() || std::exchange(polls_, true)) return;
  world_.After(world_.Random(1, kPollNs), [this] { Poll(); });
}

// --- the device

// Everything that was issued to the stream before this number is complete.
uint64_t Session::CompleteTo(size_t stream) const {
  return queues_[stream].empty() ? UINT64_MAX : queues_[stream].front().issued;
}

bool Session::Ready(const Command& command) const {
  if (command.kind == Command::Kind::kWaitEvent) return CompleteTo(command.of) >= command.behind;
  if (command.kind == Command::Kind::kWaitValue) return values_.contains(command.number);
  // The legacy stream and those that wait for it.
  if (command.stream >= kFirstFree) return true;
  if (command.stream != 0) return CompleteTo(0) >= command.issued;
  for (size_t i = 1; i < kFirstFree; ++i) {
    if (CompleteTo(i) < command.issued) return false;
  }
  return true;
}

void Session::Advance() {
  for (bool moved = true; moved;) {
    moved = false;
    for (auto& queue : queues_) {
      if (queue.empty() || queue.front().begun || !Ready(queue.front())) continue;
      if (Begin(queue.front())) queue.pop_front();
      moved = true;
    }
  }
}

// True: it is complete at once.
bool Session::Begin(Command& command) {
  command.begun = true;
  const size_t stream = command.stream;
  if (command.kind == Command::Kind::kClientWait) {
    Tell(event::WaitBegan{command.place});
    world_.After(command.ns, [this, stream] { GoesOn(stream); });
    return false;
  }
  if (command.kind == Command::Kind::kWaitValue) {
    world_.After(world_.Random(1, 200) * kMicrosecond, [this, stream] { GoesOn(stream); });
    return false;
  }
  if (!command.gated()) return true;
  if (running_++ == 0) busy_since_ns_ = world_.now();
  world_.After(command.ns, [this, stream] { End(stream); });
  return false;
}

void Session::End(size_t stream) {
  const Command command = queues_[stream].front();
  queues_[stream].pop_front();
  if (command.kind == Command::Kind::kWriteValue) values_.insert(command.number);
  if (--running_ == 0) busy_ns_ += world_.now() - busy_since_ns_;
  Advance();
}

void Session::GoesOn(size_t stream) {
  Command& wait = queues_[stream].front();
  Tell(event::WaitEnded{wait.place});
  wait.awaits = true;
  Tell(event::AwaitBegan{});
  ReturnsToStream(stream);
}

// The stream goes on if it has its turn.
bool Session::ReturnsToStream(size_t stream) {
  if (queues_[stream].empty() || !queues_[stream].front().awaits) return false;
  const WaitPlace place = queues_[stream].front().place;
  if (state_.any_aside() && !Ask({.in_stream = true, .returns = place.of.get()})) return false;
  Tell(event::AwaitEnded{});
  Tell(event::WaitPassed{place});
  queues_[stream].pop_front();
  Advance();
  return true;
}

// --- what must hold

void Session::Check() const {
  CHECK(running_ == 0 || slot_.active_gen != 0);
  uint64_t pieces = 0;
  for (const auto& stream : streams_) {
    pieces += stream->unmarked_load.pieces();
    for (const MarkedWork& work : stream->marked) pieces += work.load.pieces();
    CHECK(stream->aside.count <= pieces);
  }
  CHECK((slot_.in_flight_ns == 0) || pieces > 0);
}

void Session::CheckEnd() const {
  CHECK(state_.idle());
  CHECK(!state_.any_aside());
  CHECK_EQ(slot_.in_flight_ns, 0U);
  CHECK(!slot_.wants);
  CHECK(charged_ns_ >= busy_ns_);
  CHECK(charged_ns_ <= world_.now());
}

std::string Session::Story() const {
  std::ostringstream text;
  text << "commands left " << program_.size() << ", running " << running_ << ", asleep " << asleep_
       << ", active " << slot_.active_gen << ", wants " << slot_.wants << ", page "
       << page_.generation << "/" << static_cast<int>(page_.phase) << ", in flight "
       << slot_.in_flight_ns << ", aside " << state_.any_aside() << ", queues";
  for (const auto& queue : queues_) {
    text << " " << queue.size();
    if (!queue.empty()) text << ":" << static_cast<int>(queue.front().kind);
  }
  return text.str();
}

}  // namespace rgpu::exec::model
