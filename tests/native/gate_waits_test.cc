// Work behind a stream that stands in a client wait is set aside, and comes back in its turn.
#include "tests/native/gate_bench.h"
#include "tests/native/testing.h"

namespace rgpu::exec {
namespace {

using base::kMillisecond;
using base::kSecond;
using lease::Phase;

// A session under a slice, with a kernel behind a client wait of one stream.
struct Waiting : GateTurn {
  std::shared_ptr<StreamWork> stream = Stream();
  std::shared_ptr<Estimate> kernel = Kernel(kMillisecond);
  WaitPlace place;

  explicit Waiting(uint64_t pieces = 1) : GateTurn(kMillisecond) {
    place = LaunchesWait(*stream);
    for (uint64_t i = 0; i < pieces; ++i) IssuesAndMarks(*stream, kernel);
    Begins(place);
  }
  void Begins(const WaitPlace& at) { Tell(event::WaitBegan{at}); }
  void StandsForLong() {
    Pass(kClientNs + kMillisecond);
    Look();
  }
};

TEST(gate, what_stands_still_is_set_aside_and_the_token_goes_back) {
  Waiting waiting;
  waiting.Clear();
  waiting.StandsForLong();
  CHECK(waiting.state.any_aside());
  CHECK_EQ(waiting.state.slot().in_flight_ns, 0U);
  waiting.Pass(kGraceNs);
  waiting.Look();
  CHECK_EQ(waiting.state.slot().active_gen, 0U);
  CHECK_EQ(waiting.all.charged_ns, kClientNs + kMillisecond);  // until then others waited for it
}

TEST(gate, a_client_that_answers_soon_keeps_the_token) {
  Waiting waiting;
  waiting.Pass(kClientNs - 1);
  waiting.Look();
  CHECK(!waiting.state.any_aside());
  waiting.Tell(event::WaitEnded{waiting.place});
  waiting.Pass(kSecond);
  waiting.Look();
  CHECK(!waiting.state.any_aside());
}

TEST(gate, a_stream_does_not_go_on_before_the_token_is_back) {
  Waiting waiting;
  waiting.StandsForLong();
  waiting.Look(Phase::kNone, 3);
  waiting.Look();
  CHECK_EQ(waiting.state.slot().active_gen, 0U);
  waiting.Tell(event::WaitEnded{waiting.place});
  waiting.Tell(event::AwaitBegan{});
  CHECK(!waiting.Asks(0, true, waiting.stream->waits.get()));
  CHECK(waiting.last.signal);
  CHECK(waiting.Look(Phase::kSlice, 4, 20 * kMillisecond).wake_held);
  CHECK(waiting.Asks(0, true, waiting.stream->waits.get()));
  CHECK(!waiting.state.any_aside());
  CHECK_EQ(waiting.state.slot().in_flight_ns, kMillisecond);
  CHECK_EQ(waiting.state.slot().active_gen, 4U);
}

// Nobody would charge for work that runs after the session has failed.
TEST(gate, what_is_set_aside_never_goes_on_once_the_session_has_failed) {
  Waiting waiting;
  waiting.StandsForLong();
  waiting.Look(Phase::kNone, 3);
  waiting.Tell(event::Failed{});
  waiting.Look();
  CHECK(waiting.state.any_aside());
  CHECK_EQ(waiting.state.slot().active_gen, 0U);
  waiting.Tell(event::WaitEnded{waiting.place});
  waiting.Tell(event::AwaitBegan{});
  CHECK(!waiting.Asks(0, true, waiting.stream->waits.get()));
  waiting.Look(Phase::kSlice, 4, 20 * kMillisecond);
  CHECK(!waiting.Asks(0, true, waiting.stream->waits.get()));
}

TEST(gate, work_that_may_run_keeps_the_token) {
  Waiting waiting;
  const auto other = waiting.Stream(false, false);
  waiting.IssuesAndMarks(*other, waiting.kernel);
  waiting.StandsForLong();
  CHECK(!waiting.state.any_aside());
  waiting.Completes(*other, 2);
  waiting.Look();
  CHECK(waiting.state.any_aside());
}

TEST(gate, work_behind_an_event_stands_still_too) {
  Waiting waiting;
  const auto other = waiting.Stream(false, false);
  const WaitPlaces behind = waiting.stream->behind;  // what an event now comes behind
  CHECK(GateState::MustMark(*other, behind) == GateState::MarkFirst::kNothing);
  waiting.Tell(event::OrderedBehind{*other, waiting.order, behind});
  waiting.IssuesAndMarks(*other, waiting.kernel);
  waiting.StandsForLong();
  CHECK(waiting.state.any_aside());
}

// What a stream had before it came behind a client wait may be running.
TEST(gate, work_from_before_the_order_is_marked_and_keeps_the_token) {
  Waiting waiting;
  const auto other = waiting.Stream(false, false);
  waiting.Issues(*other, waiting.kernel);
  CHECK(GateState::MustMark(*other, waiting.stream->behind) == GateState::MarkFirst::kStream);
  const uint64_t running = waiting.Marks(*other);
  waiting.Tell(event::OrderedBehind{*other, waiting.order, waiting.stream->behind});
  waiting.IssuesAndMarks(*other, waiting.kernel);
  waiting.StandsForLong();
  CHECK(!waiting.state.any_aside());
  waiting.Completes(*other, running);
  waiting.Look();
  CHECK(waiting.state.any_aside());
}

TEST(gate, the_legacy_stream_orders_blocking_streams_and_no_others) {
  Waiting waiting;
  const auto legacy = waiting.Stream(true);
  const auto blocking = waiting.Stream();
  const auto free = waiting.Stream(false, false);
  CHECK(GateState::MustMark(*legacy, waiting.order.behind_blocking) ==
        GateState::MarkFirst::kAllStreams);
  waiting.IssuesAndMarks(*legacy, waiting.kernel);
  waiting.IssuesAndMarks(*blocking, waiting.kernel);
  waiting.StandsForLong();
  CHECK(waiting.state.any_aside());
  CHECK_EQ(legacy->aside.count, 1U);
  CHECK_EQ(blocking->aside.count, 1U);
  CHECK(!free->behind.HasOneOf(waiting.stream->waits.get()));
}

// A session under a slice, with kernels behind a wait for a value of one stream.
struct WaitingForValue : GateTurn {
  std::shared_ptr<StreamWork> stream = Stream(false, false);
  std::shared_ptr<Estimate> kernel = Kernel(kMillisecond);
  WaitPlace place = {std::make_shared<ClientWaits>(), 1};

  WaitingForValue() : GateTurn(kMillisecond) {}
  void Waits() { Tell(event::ValueWaitLaunched{*stream, order, place}); }
  // The same in a graph, whose launch has the place: it is at the halt before the wait.
  void WaitsInGraph() {
    place = LaunchesWait(*stream);
    IssuesAndMarks(*stream, kernel);
    Tell(event::WaitBegan{place, true});
  }
  void StandsForLong() {
    Pass(kClientNs + kMillisecond);
    Look();
  }
};

TEST(gate, a_stream_that_waits_for_a_value_does_not_keep_the_token) {
  WaitingForValue waiting;
  waiting.Waits();
  waiting.IssuesAndMarks(*waiting.stream, waiting.kernel);
  waiting.Pass(kClientNs - 1);
  waiting.Look();
  CHECK(!waiting.state.any_aside());
  waiting.StandsForLong();
  CHECK(waiting.state.any_aside());
  waiting.Pass(kGraceNs);
  waiting.Look();
  CHECK_EQ(waiting.state.slot().active_gen, 0U);
  waiting.Look(Phase::kNone, 3);
  // The value is there: the stream is at its halt.
  waiting.Tell(event::WaitEnded{waiting.place});
  waiting.Tell(event::AwaitBegan{});
  CHECK(!waiting.Asks(0, true, waiting.place.of.get()));
  waiting.Look(Phase::kSlice, 4, 20 * kMillisecond);
  CHECK(waiting.Asks(0, true, waiting.place.of.get()));
  CHECK_EQ(waiting.state.slot().in_flight_ns, kMillisecond);
}

TEST(gate, work_before_a_wait_for_a_value_keeps_the_token_and_so_does_a_value_that_comes_soon) {
  WaitingForValue waiting;
  waiting.Issues(*waiting.stream, waiting.kernel);
  WaitPlaces next;
  next.Add(waiting.place);
  CHECK(GateState::MustMark(*waiting.stream, next) == GateState::MarkFirst::kStream);
  const uint64_t running = waiting.Marks(*waiting.stream);
  waiting.Waits();
  waiting.IssuesAndMarks(*waiting.stream, waiting.kernel);
  waiting.StandsForLong();
  CHECK(!waiting.state.any_aside());
  waiting.Completes(*waiting.stream, running);
  waiting.Look();
  CHECK(!waiting.state.any_aside());  // the stream has only now come to its wait
  waiting.StandsForLong();
  CHECK(waiting.state.any_aside());
}

// Work that is held back may write the value.
void MayAlwaysAdd(WaitingForValue& waiting) {
  constexpr uint64_t kSlice = 20 * kMillisecond;
  for (uint64_t i = 0; i <= kMuchAsideCount; ++i) {
    waiting.IssuesAndMarks(*waiting.stream, waiting.kernel);
  }
  waiting.StandsForLong();
  CHECK(waiting.state.any_aside());
  uint64_t generation = 3;
  int admitted = 0;
  for (int turn = 0; turn < 100; ++turn, ++generation) {
    waiting.Pass(kSlice);
    waiting.Look(Phase::kNone, generation);
    waiting.Look(Phase::kSlice, ++generation, kSlice);
    if (!waiting.Asks(kMillisecond)) continue;
    ++admitted;
    waiting.IssuesAndMarks(*waiting.stream, waiting.kernel);
    waiting.StandsForLong();
  }
  CHECK(admitted > 2 && admitted < 100);
}

TEST(gate, a_session_that_waits_for_a_value_may_always_add_work) {
  WaitingForValue waiting;
  waiting.Waits();
  MayAlwaysAdd(waiting);
  WaitingForValue in_graph;
  in_graph.WaitsInGraph();
  MayAlwaysAdd(in_graph);
}

TEST(gate, a_stream_that_is_gone_waits_for_no_value) {
  WaitingForValue waiting;
  waiting.Waits();
  waiting.Tell(event::Forgotten{*waiting.stream});
  CHECK(waiting.place.over() && !waiting.place.Stands(UINT64_MAX));
  WaitingForValue in_graph;
  in_graph.WaitsInGraph();
  CHECK(in_graph.place.Stands(UINT64_MAX));
  in_graph.Tell(event::Forgotten{*in_graph.stream});
  CHECK(in_graph.place.over() && !in_graph.place.Stands(UINT64_MAX));
}

TEST(gate, only_what_comes_behind_this_wait_comes_back_with_it) {
  Waiting waiting;
  const auto other = waiting.Stream(false, false);
  const WaitPlace second = waiting.LaunchesWait(*other);
  waiting.IssuesAndMarks(*other, waiting.kernel);
  waiting.Begins(second);
  waiting.StandsForLong();
  CHECK_EQ(other->aside.count, 1U);
  waiting.Tell(event::WaitEnded{second});
  CHECK(waiting.Asks(0, true, other->waits.get()));
  CHECK_EQ(other->aside.count, 0U);
  CHECK_EQ(waiting.stream->aside.count, 1U);
}

TEST(gate, much_that_is_set_aside_lets_nothing_more_go) {
  Waiting waiting(kMuchAsideCount + 1);
  waiting.StandsForLong();
  CHECK(waiting.state.any_aside());
  waiting.Look(Phase::kNone, 3);
  waiting.Look(Phase::kSlice, 4, 20 * kMillisecond);
  CHECK(!waiting.Asks(kMillisecond));
}

// A host function that could not get the executor's lock went on without the token.
TEST(gate, work_that_went_on_by_itself_counts_and_its_standing_is_not_measured) {
  Waiting waiting;
  waiting.StandsForLong();
  waiting.Look(Phase::kNone, 3);
  waiting.Tell(event::WaitEnded{waiting.place});
  waiting.Pass(kSecond);
  waiting.Tell(event::WentOn{waiting.stream->waits, false});
  CHECK(!waiting.state.any_aside());
  CHECK_EQ(waiting.state.slot().in_flight_ns, kMillisecond);
  waiting.Clear();
  waiting.Pass(kMillisecond);
  waiting.Completes(*waiting.stream, 1);
  CHECK_EQ(waiting.all.charged_ns, kMillisecond);
  CHECK_EQ(waiting.kernel->Predict(1), kMillisecond);
}

TEST(gate, work_that_is_complete_although_it_was_set_aside_is_charged_for_its_run_only) {
  Waiting waiting;
  waiting.StandsForLong();
  waiting.Look(Phase::kNone, 3);
  waiting.Clear();
  waiting.Pass(kSecond);
  waiting.Completes(*waiting.stream, 1);
  CHECK(!waiting.state.any_aside());
  CHECK(waiting.state.idle());
  CHECK_EQ(waiting.all.charged_ns, kMillisecond);
}

TEST(gate, a_stream_that_is_gone_is_no_longer_set_aside) {
  Waiting waiting;
  waiting.StandsForLong();
  waiting.Tell(event::Forgotten{*waiting.stream});
  CHECK(!waiting.state.any_aside());
  CHECK(waiting.state.idle());
}

// A session that is alone on the device, with a kernel behind a client wait that begins at once.
struct WaitingAlone : GateBench {
  std::shared_ptr<StreamWork> stream = Stream();
  std::shared_ptr<StreamWork> other = Stream(false, false);
  std::shared_ptr<Estimate> kernel = Kernel(kMillisecond);
  WaitPlace place;

  WaitingAlone() {
    Look(Phase::kOpen, 2);
    CHECK(Asks(kMillisecond));
    place = LaunchesWait(*stream);
    Tell(event::WaitBegan{place});
    IssuesAndMarks(*stream, kernel);
    Clear();
  }
};

TEST(gate, a_session_that_is_alone_is_not_charged_while_it_waits_for_its_client) {
  WaitingAlone waiting;
  for (int i = 0; i < 20; ++i) {
    waiting.Pass(100 * kMillisecond);
    waiting.Tell(event::StillRuns{});
  }
  CHECK_EQ(waiting.all.charged_ns, 0U);
  CHECK_EQ(waiting.state.slot().in_flight_ns, kMillisecond);  // it keeps the token
  waiting.Pass(50 * kMillisecond);
  waiting.Tell(event::WaitEnded{waiting.place});
  waiting.Pass(kMillisecond);
  waiting.Completes(*waiting.stream, 1);
  CHECK_EQ(waiting.all.charged_ns, kMillisecond);
  CHECK_EQ(waiting.kernel->Predict(1), kMillisecond);
}

TEST(gate, a_session_that_is_alone_is_charged_for_its_other_work_during_a_client_wait) {
  WaitingAlone waiting;
  uint64_t worked = 0;
  for (int i = 0; i < 10; ++i) {
    waiting.Pass(90 * kMillisecond);
    const uint64_t marker = waiting.IssuesAndMarks(*waiting.other, waiting.kernel);
    waiting.Pass(5 * kMillisecond);
    waiting.Tell(event::StillRuns{});
    waiting.Pass(5 * kMillisecond);
    waiting.Completes(*waiting.other, marker);
    worked += 10 * kMillisecond;
  }
  CHECK_EQ(waiting.all.charged_ns, worked);
}

TEST(gate, a_wait_that_began_late_leaves_the_work_before_it_charged) {
  WaitingAlone waiting;
  waiting.Tell(event::WaitEnded{waiting.place});
  waiting.Tell(event::WaitPassed{waiting.place});
  const WaitPlace second = waiting.LaunchesWait(*waiting.other);
  waiting.IssuesAndMarks(*waiting.other, waiting.kernel);
  waiting.Pass(kSecond);  // the kernel of the first stream
  waiting.Completes(*waiting.stream, 1);
  waiting.Tell(event::WaitBegan{second});
  waiting.Pass(kSecond);
  waiting.Tell(event::WaitEnded{second});
  waiting.Pass(kMillisecond);
  waiting.Completes(*waiting.other, 2);
  CHECK_EQ(waiting.all.charged_ns, kSecond + kMillisecond);
}

TEST(gate, a_client_wait_of_a_session_that_was_alone_is_set_aside_at_once_for_others) {
  WaitingAlone waiting;
  waiting.Pass(kSecond);
  waiting.Look(Phase::kSlice, 2, 20 * kMillisecond);
  CHECK(waiting.state.any_aside());
  CHECK_EQ(waiting.all.charged_ns, 0U);
}

TEST(gate, a_host_function_goes_on_while_the_session_has_work_on_the_device) {
  Waiting waiting;
  CHECK(waiting.Asks(kSecond, true));  // the work may wait for the stream of this function
  waiting.Look(Phase::kRecalled, 2);
  CHECK(waiting.Asks(kSecond, true));
}

}  // namespace
}  // namespace rgpu::exec
