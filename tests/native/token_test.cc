#include "rgpu_common/native/lease/token.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rgpu_common/native/base/clock.h"
#include "tests/native/testing.h"

namespace rgpu::lease {
namespace {

using base::kSecond;

Page* SharedPage() {
  void* at = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(at != MAP_FAILED);
  InitPage(static_cast<Page*>(at), 1);
  return static_cast<Page*>(at);
}

TEST(token, a_new_page_is_not_scheduled) {
  Page* page = SharedPage();
  CHECK(ReadGrant(page).phase == Phase::kOff);
  munmap(page, kPageBytes);
}

TEST(token, what_is_written_is_read) {
  Page* page = SharedPage();
  WriteGrant(page, {7, Phase::kSlice, 100, 200});
  const Grant first = ReadGrant(page);
  CHECK(first.running());
  CHECK_EQ(first.generation, 7U);
  CHECK_EQ(first.start_ns, 100U);
  CHECK_EQ(first.slice_ns, 200U);
  CHECK(SameGrant(page, first));
  WriteGrant(page, {7, Phase::kSlice, 100, 200});  // the same again is another word
  CHECK(!SameGrant(page, first));
  munmap(page, kPageBytes);
}

// A writer in another process: start and slice always belong together.
TEST(token, grants_are_never_mixed) {
  Page* page = SharedPage();
  const pid_t writer = fork();
  if (writer == 0) {
    for (uint64_t i = 1; i <= 20'000; ++i) WriteGrant(page, {i, Phase::kSlice, i, 2 * i});
    WriteGrant(page, {30'000, Phase::kRecalled, 1, 2});
    _exit(0);
  }
  uint64_t last = 0;
  for (;;) {
    const Grant grant = ReadGrant(page);
    CHECK_EQ(grant.slice_ns, 2 * grant.start_ns);
    CHECK(grant.generation >= last);
    last = grant.generation;
    if (grant.phase == Phase::kRecalled) break;
    CHECK(grant.phase == Phase::kOff || grant.generation == grant.start_ns);
  }
  int status = 0;
  CHECK_EQ(waitpid(writer, &status, 0), writer);
  CHECK_EQ(status, 0);
  munmap(page, kPageBytes);
}

TEST(token, a_wait_ends_with_the_next_grant) {
  Page* page = SharedPage();
  const Grant before = ReadGrant(page);
  const pid_t writer = fork();
  if (writer == 0) {
    WriteGrant(page, {1, Phase::kOpen});
    _exit(0);
  }
  const uint64_t until = base::NowNs() + 10 * kSecond;
  while (SameGrant(page, before) && base::NowNs() < until) WaitGrant(page, before.futex, kSecond);
  CHECK(ReadGrant(page).phase == Phase::kOpen);
  waitpid(writer, nullptr, 0);
  WaitGrant(page, ReadGrant(page).futex, 1000);  // nobody writes: the time passes
  munmap(page, kPageBytes);
}

TEST(token, demand_is_what_the_workers_in_use_say) {
  Page* page = SharedPage();
  CHECK_EQ(ClaimSlot(page, 11), 0);
  CHECK_EQ(ClaimSlot(page, 12), 1);
  SlotGate& busy = page->slots[0].gate;
  busy.active_gen = 5;
  busy.alive_ns = 900;
  busy.kernel_us = 40;
  busy.in_flight_ns = 1000;
  busy.near_end_gen = 5;
  SlotGate& spent = page->slots[1].gate;
  spent.spent_gen = 5;
  spent.wants = 1;
  spent.drained_ns = 800;
  page->slots[2].gate.wants = 1;  // a slot nobody has
  const Demand demand = ReadDemand(page, 5);
  CHECK_EQ(demand.workers, 2U);
  CHECK_EQ(demand.active, 1U);
  CHECK_EQ(demand.wanting, 1U);
  CHECK_EQ(demand.near_end, 1U);
  CHECK_EQ(demand.spent, 1U);
  CHECK_EQ(demand.kernel_us, 40U);
  CHECK_EQ(demand.in_flight_ns, 1000U);
  CHECK_EQ(demand.oldest_alive_ns, 900U);
  CHECK_EQ(demand.drained_ns, 800U);
  CHECK_EQ(ReadDemand(page, 6).spent, 0U);
  const Demand second = ReadDemand(page, 5, 0b10);
  CHECK_EQ(second.workers, 1U);
  CHECK_EQ(second.active, 0U);
  CHECK_EQ(second.spent, 1U);
  CHECK_EQ(ReadDemand(page, 5, 0).workers, 0U);
  ClearSlot(page, 0);
  CHECK_EQ(ReadDemand(page, 5).active, 0U);
  munmap(page, kPageBytes);
}

}  // namespace
}  // namespace rgpu::lease
