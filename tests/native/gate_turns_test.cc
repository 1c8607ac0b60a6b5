// What the gate admits under a grant, and when the token goes back.
#include "tests/native/gate_bench.h"
#include "tests/native/testing.h"

namespace rgpu::exec {
namespace {

using base::kMillisecond;
using base::kSecond;
using lease::Phase;

TEST(gate, everything_goes_while_nobody_schedules) {
  GateBench bench;
  for (int i = 0; i < 100; ++i) CHECK(bench.Asks(kSecond));
  CHECK(!bench.state.active());
  CHECK(!bench.all.signal);
}

TEST(gate, work_without_a_grant_is_held_and_the_loop_is_told_once) {
  GateBench bench;
  bench.Look(Phase::kNone, 1);
  CHECK(!bench.Asks(kMillisecond));
  CHECK(bench.last.hold);
  CHECK(bench.last.signal);
  CHECK(bench.state.slot().wants);
  CHECK_EQ(bench.state.slot().kernel_us, 1'000U);
  CHECK(!bench.Asks(kMillisecond));
  CHECK(!bench.last.signal);
}

TEST(gate, held_work_is_asked_for_again_when_the_grant_comes) {
  GateBench bench;
  bench.Look(Phase::kNone, 1);
  CHECK(!bench.Asks(kMillisecond));
  bench.Tell(event::Holding{true});
  CHECK(bench.Look(Phase::kSlice, 2, 10 * kMillisecond).wake_held);
  bench.Pass(kMillisecond);
  CHECK(bench.Asks(kMillisecond));
  CHECK_EQ(bench.state.slot().active_gen, 2U);
  bench.Tell(event::Holding{false});
  CHECK(!bench.state.slot().wants);
  CHECK_EQ(bench.state.slot().held_back_ns, kMillisecond);
}

// The worker writes that it is active, and then finds that the loop has taken the grant back.
TEST(gate, a_grant_that_is_gone_when_it_is_entered_admits_nothing) {
  GateBench bench;
  bench.Look(Phase::kSlice, 2, 10 * kMillisecond);
  CHECK(bench.Tell(event::Asked{kMillisecond}).enter);
  CHECK_EQ(bench.state.slot().active_gen, 2U);
  CHECK(!bench.state.active());
  const lease::Grant recalled{2, Phase::kRecalled, bench.now, 0, 99};
  const GateActions answer = bench.Tell(event::Entered{recalled});
  CHECK(answer.hold);
  CHECK(answer.look);
  CHECK_EQ(bench.state.slot().active_gen, 0U);
}

TEST(gate, a_slice_holds_what_would_be_on_the_device_beyond_the_budget) {
  GateBench bench;
  const auto stream = bench.Stream();
  const auto kernel = bench.Kernel(2 * kMillisecond);
  bench.Look(Phase::kSlice, 2, 20 * kMillisecond);
  int admitted = 0;
  while (bench.Asks(2 * kMillisecond)) {
    bench.IssuesAndMarks(*stream, kernel);
    ++admitted;
  }
  CHECK_EQ(admitted, 2);  // 5 ms
  bench.Tell(event::Holding{true});
  bench.Pass(2 * kMillisecond);
  bench.Completes(*stream, 1);
  CHECK(bench.all.wake_held);
  CHECK(bench.Asks(2 * kMillisecond));
}

TEST(gate, the_first_kernel_of_a_slice_goes_however_long_it_is) {
  GateBench bench;
  const auto stream = bench.Stream();
  bench.Look(Phase::kSlice, 2, 10 * kMillisecond);
  CHECK(bench.Asks(kSecond));
  bench.IssuesAndMarks(*stream, bench.Kernel(kSecond));
  bench.Clear();
  CHECK(!bench.Asks(kSecond));
  CHECK_EQ(bench.state.slot().near_end_gen, 2U);
  CHECK(bench.all.signal);
  bench.Pass(kSecond);
  bench.Completes(*stream, 1);
  CHECK_EQ(bench.state.slot().spent_gen, 2U);
  CHECK_EQ(bench.state.slot().active_gen, 0U);
  CHECK(bench.all.signal);
}

TEST(gate, a_recall_lets_nothing_go_and_the_token_goes_back_when_the_device_is_empty) {
  GateBench bench;
  const auto stream = bench.Stream();
  bench.has_streams = false;
  bench.Look(Phase::kOpen, 2);
  CHECK(bench.Asks(kMillisecond));
  bench.IssuesAndMarks(*stream, bench.Kernel(kMillisecond));
  bench.Look(Phase::kRecalled, 2);
  CHECK(bench.last.mark);
  CHECK(!bench.Asks(kMillisecond));
  CHECK_EQ(bench.state.slot().active_gen, 2U);
  bench.Clear();
  bench.Pass(kMillisecond);
  bench.Completes(*stream, 1);
  CHECK_EQ(bench.state.slot().active_gen, 0U);
  CHECK_EQ(bench.state.slot().drained_ns, bench.now);
  CHECK(bench.all.signal);
}

TEST(gate, an_open_grant_with_room_admits_all_without_being_asked) {
  GateBench bench;
  const auto stream = bench.Stream();
  bench.Look(Phase::kOpen, 2);
  CHECK(!bench.state.roomy());  // the slot does not say yet that it is active
  CHECK(bench.Asks(kMillisecond));
  CHECK(bench.state.roomy());
  for (int i = 0; i < 10; ++i) bench.Issues(*stream, bench.Kernel(kMillisecond));
  CHECK(!bench.state.roomy());
}

TEST(gate, an_idle_slice_goes_back_after_the_grace) {
  GateTurn bench(kMillisecond);
  const auto stream = bench.Stream();
  bench.IssuesAndMarks(*stream, bench.Kernel(kMillisecond));
  bench.Pass(kMillisecond);
  bench.Completes(*stream, 1);
  CHECK(bench.state.in_grace());
  CHECK_EQ(bench.state.slot().active_gen, 2U);
  bench.Pass(kGraceNs);
  bench.Look();
  CHECK_EQ(bench.state.slot().active_gen, 0U);
}

// A kernel may wait for a value that work which is held back would write.
TEST(gate, held_work_goes_in_the_end_if_nothing_moves_under_a_grant) {
  GateBench bench;
  const auto stream = bench.Stream();
  bench.Look(Phase::kSlice, 2, 10 * kMillisecond);
  CHECK(bench.Asks(kMillisecond));
  bench.IssuesAndMarks(*stream, bench.Kernel(kMillisecond));
  bench.Pass(20 * kMillisecond);
  CHECK(!bench.Asks(kMillisecond));
  bench.Tell(event::Holding{true});
  bench.Pass(20 * kMillisecond);
  CHECK(!bench.Tell(event::Ticked{true}).wake_held);
  bench.Pass(40 * kMillisecond);
  CHECK(!bench.Tell(event::Ticked{false}).wake_held);  // one stream waits for nothing
  CHECK(bench.Tell(event::Ticked{true}).wake_held);
  CHECK(bench.Asks(kMillisecond));
  CHECK(!bench.Asks(kMillisecond));  // one piece at a time
}

TEST(gate, a_client_that_is_away_admits_nothing_and_gives_the_token_back) {
  GateBench bench;
  const auto stream = bench.Stream();
  bench.Look(Phase::kOpen, 2);
  CHECK(bench.Asks(kMillisecond));
  bench.IssuesAndMarks(*stream, bench.Kernel(kMillisecond));
  bench.Tell(event::LinkLost{});
  CHECK(!bench.Asks(kMillisecond));
  bench.Tell(event::Holding{true});
  bench.Look(Phase::kRecalled, 2);
  bench.Completes(*stream, 1);
  CHECK_EQ(bench.state.slot().active_gen, 0U);
  CHECK(bench.Tell(event::LinkBack{}).wake_held);
}

TEST(gate, without_a_loop_a_lease_keeps_to_its_share) {
  GateBench bench;
  const auto stream = bench.Stream();
  const auto kernel = bench.Kernel(kMillisecond);
  bench.grant = {2, Phase::kSlice, bench.now, 10 * kMillisecond, 1};
  const auto look = [&] {
    bench.Tell(event::Looked{bench.grant, GateBench::kStartNs, 1, 0, 500'000});
  };
  look();
  bench.Pass(6 * kSecond);
  look();
  uint64_t busy_ns = 0;
  const uint64_t began = bench.now;
  while (bench.now < began + kSecond) {
    if (bench.Asks(kMillisecond)) {
      const uint64_t marker = bench.IssuesAndMarks(*stream, kernel);
      bench.Pass(kMillisecond);
      busy_ns += kMillisecond;
      bench.Completes(*stream, marker);
    } else {
      bench.Pass(kMillisecond);
    }
  }
  CHECK(busy_ns >= 490 * kMillisecond);
  CHECK(busy_ns <= 526 * kMillisecond);
}

TEST(gate, the_device_time_of_a_turn_is_charged_once) {
  GateTurn bench(kMillisecond);
  const auto one = bench.Stream();
  const auto two = bench.Stream();
  const uint64_t first = bench.IssuesAndMarks(*one, bench.Kernel(kMillisecond));
  const uint64_t second = bench.IssuesAndMarks(*two, bench.Kernel(kMillisecond));
  bench.Clear();
  bench.Pass(3 * kMillisecond);  // both ran side by side
  bench.Completes(*one, first);
  bench.Completes(*two, second);
  CHECK_EQ(bench.all.charged_ns, 3 * kMillisecond);
}

TEST(gate, a_long_kernel_is_charged_while_it_runs) {
  GateTurn bench(kSecond);
  const auto stream = bench.Stream();
  bench.IssuesAndMarks(*stream, bench.Kernel(kSecond));
  bench.Clear();
  bench.Pass(99 * kMillisecond);
  CHECK(!bench.state.RunsLong(bench.now));
  bench.Pass(kMillisecond);
  CHECK(bench.state.RunsLong(bench.now));
  CHECK_EQ(bench.Tell(event::StillRuns{}).charged_ns, 100 * kMillisecond);
  bench.Pass(kMillisecond);
  bench.Completes(*stream, 1);
  CHECK_EQ(bench.all.charged_ns, 101 * kMillisecond);
}

TEST(gate, a_session_that_has_failed_keeps_the_token_until_its_work_has_stopped) {
  GateTurn bench(kSecond);
  const auto stream = bench.Stream();
  bench.IssuesAndMarks(*stream, bench.Kernel(kSecond));
  bench.Tell(event::Failed{});
  CHECK(bench.Asks(kSecond));  // it is not executed, and its caller gets the error
  CHECK(bench.Look(Phase::kRecalled, 2).ask_driver);
  CHECK(!bench.last.overdue);
  CHECK_EQ(bench.state.slot().active_gen, 2U);
  bench.Pass(kStopNs);
  CHECK(bench.Look().overdue);
  CHECK(bench.Tell(event::Stopped{}).signal);
  CHECK_EQ(bench.state.slot().active_gen, 0U);
  CHECK_EQ(bench.state.slot().in_flight_ns, 0U);
}

TEST(gate, a_stream_that_is_gone_takes_its_work_with_it) {
  GateTurn bench(kMillisecond);
  const auto stream = bench.Stream();
  const auto kernel = bench.Kernel(kMillisecond);
  const uint64_t marker = bench.IssuesAndMarks(*stream, kernel);
  bench.Issues(*stream, kernel);
  bench.Tell(event::Forgotten{*stream});
  CHECK(bench.state.idle());
  CHECK(bench.state.unmarked().empty());
  bench.Tell(event::Completed{*stream, marker, 0, bench.now, bench.now});  // found later: nothing
  CHECK(bench.state.idle());
}

}  // namespace
}  // namespace rgpu::exec
