#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/lease/page.h"
#include "tests/native/testing.h"

namespace rgpu::lease {
namespace {

class SharedPage {
 public:
  explicit SharedPage(uint64_t limit) {
    void* at = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    page_ = static_cast<Page*>(at);
    InitPage(page_, limit);
  }
  ~SharedPage() { munmap(page_, kPageBytes); }
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;
  Page* get() const { return page_; }
  Page* operator->() const { return page_; }

 private:
  Page* page_;
};

void WaitFor(pid_t child, int expected) {
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, expected);
}

TEST(lease, charges_up_to_the_limit) {
  const SharedPage page(1000);
  CHECK(IsPage(page.get()));
  CHECK(Charge(page.get(), 0, 600));
  CHECK(!Charge(page.get(), 1, 401));
  CHECK(Charge(page.get(), 1, 400));
  CHECK(Charge(page.get(), 1, 0));
  CHECK_EQ(UsedBytes(page.get()), 1000U);
  CHECK_EQ(page->slots[1].refused.load(), 1U);
  Release(page.get(), 0, 100);
  CHECK(!Charge(page.get(), 1, UINT64_MAX));
  CHECK(Charge(page.get(), 0, 50));
  CHECK_EQ(page->slots[0].peak_bytes.load(), 600U);
  Release(page.get(), 0, UINT64_MAX);
  CHECK_EQ(page->slots[0].used_bytes.load(), 0U);
  CHECK(!Charge(page.get(), kSlots, 1));
  page->memory_limit_bytes = 100;  // resized below what is used
  CHECK(!Charge(page.get(), 0, 1));
}

TEST(lease, what_is_refused_after_it_was_charged_is_in_no_peak) {
  const SharedPage page(1000);
  CHECK(TryCharge(page.get(), 0, 300, Peak::kLater));
  CHECK_EQ(page->slots[0].peak_bytes.load(), 0U);
  RaisePeak(page.get(), 0);  // the device has given it
  CHECK_EQ(page->slots[0].peak_bytes.load(), 300U);
  CHECK(Charge(page.get(), 0, 600, Peak::kLater));
  Release(page.get(), 0, 600);  // the device has refused it
  RaisePeak(page.get(), 0);
  CHECK_EQ(page->slots[0].peak_bytes.load(), 300U);
  // A pool has grown past the limit: it holds the bytes until it is trimmed.
  Count(page.get(), 0, 900, Peak::kLater);
  RaisePeak(page.get(), 0, 900);
  SetCredit(page.get(), 0, 0, 900);
  CHECK_EQ(page->slots[0].peak_bytes.load(), 300U);
  RaisePeak(page.get(), 0, UINT64_MAX);
  RaisePeak(page.get(), kSlots);
  CHECK_EQ(page->slots[0].peak_bytes.load(), 300U);
  CHECK(!Charge(page.get(), 0, 1, Peak::kLater));
  CHECK_EQ(page->slots[0].refused.load(), 1U);
}

TEST(lease, credit_is_charged_and_not_allocated) {
  const SharedPage page(1000);
  SetCredit(page.get(), 0, 300);  // shown before it is charged
  CHECK_EQ(AllocatedBytes(page.get()), 0U);
  CHECK(Charge(page.get(), 0, 300));
  CHECK(Charge(page.get(), 1, 500));
  CHECK(!Charge(page.get(), 1, 201));
  CHECK_EQ(UsedBytes(page.get()), 800U);
  CHECK_EQ(AllocatedBytes(page.get()), 500U);
  CHECK_EQ(CreditOfOthers(page.get(), 1), 300U);
  CHECK_EQ(CreditOfOthers(page.get(), 0), 0U);
  CHECK_EQ(page->slots[0].peak_bytes.load(), 0U);
  SetCredit(page.get(), 0, 100);  // 200 are allocated
  CHECK_EQ(AllocatedBytes(page.get()), 700U);
  CHECK_EQ(page->slots[0].peak_bytes.load(), 200U);
  SetCredit(page.get(), 0, UINT64_MAX);  // what a worker writes may be nonsense
  CHECK_EQ(AllocatedBytes(page.get()), 500U);
  ClearSlot(page.get(), 0);
  CHECK_EQ(CreditOfOthers(page.get(), 1), 0U);
  SetCredit(page.get(), kSlots, 1);
}

TEST(lease, who_wants_credit_wakes_the_others) {
  const SharedPage page(1000);
  const uint32_t seen = CreditWanted(page.get());
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    WaitCreditWanted(page.get(), seen);
    _exit(CreditWanted(page.get()) == seen ? 1 : 0);
  }
  WantCredit(page.get());
  WaitFor(child, 0);
  WaitCreditWanted(page.get(), seen);  // returns at once
}

// What another process frees may become its credit after it was asked for what it had.
TEST(lease, who_waits_for_memory_asks_again) {
  const SharedPage page(100);
  Count(page.get(), 1, 90);
  SetCredit(page.get(), 1, 40);
  std::thread other([&] {
    WaitCreditWanted(page.get(), 0);
    Release(page.get(), 1, 40);
    SetCredit(page.get(), 1, 50);
    WaitCreditWanted(page.get(), CreditWanted(page.get()));
    Release(page.get(), 1, 50);
    SetCredit(page.get(), 1, 0);
  });
  CHECK(WaitForOthers(page.get(), 0, [&] { return TryCharge(page.get(), 0, 95); }));
  other.join();
  CHECK_EQ(UsedBytes(page.get()), 95U);
}

TEST(lease, slots_are_claimed_and_cleared) {
  const SharedPage page(1000);
  for (uint64_t i = 0; i < kSlots; ++i) {
    CHECK_EQ(ClaimSlot(page.get(), 100 + i), static_cast<int>(i));
  }
  CHECK_EQ(ClaimSlot(page.get(), 1), -1);
  CHECK(Charge(page.get(), 3, 1000));
  ClearSlot(page.get(), 3);
  CHECK_EQ(UsedBytes(page.get()), 0U);
  CHECK_EQ(ClaimSlot(page.get(), 1), 3);
}

// Each process takes 1 to 7 bytes again and again, and gives every third back, until it is refused
// 50 times; none may ever see more in use than the limit.
TEST(lease, processes_never_exceed_it_together) {
  constexpr uint64_t kLimit = 5000;
  const SharedPage page(kLimit);
  std::vector<pid_t> children;
  for (uint32_t slot = 0; slot < 4; ++slot) {
    const pid_t child = fork();
    if (child == 0) {
      bool exceeded = false;
      for (uint64_t i = 1; page->slots[slot].refused.load() < 50; ++i) {
        const uint64_t bytes = i % 7 + 1;
        if (Charge(page.get(), slot, bytes) && i % 3 == 0) Release(page.get(), slot, bytes);
        exceeded |= UsedBytes(page.get()) > kLimit;
      }
      _exit(exceeded ? 1 : 0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) WaitFor(child, 0);
  CHECK(UsedBytes(page.get()) <= kLimit);
  CHECK(UsedBytes(page.get()) > kLimit - 8);
}

// Under qemu-user the kernel does not hear of the mutexes that a thread holds.
void NeedsRobustMutexes() {
  void* head = nullptr;
  size_t bytes = 0;
  if (syscall(SYS_get_robust_list, 0, &head, &bytes) != 0 && errno == ENOSYS) {
    throw testing::Skipped("the kernel has no get_robust_list, so mutexes of the killed stay held");
  }
}

TEST(lease, a_killed_owner_of_the_mutex_does_not_block) {
  NeedsRobustMutexes();
  const SharedPage page(1000);
  for (int i = 0; i < 3; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      pthread_mutex_lock(&page->mutex);
      raise(SIGKILL);
    }
    WaitFor(child, SIGKILL);
    const uint64_t before = base::NowNs();
    CHECK(Charge(page.get(), 0, 1));
    CHECK(base::NowNs() - before < 1000000000U);
  }
  CHECK_EQ(UsedBytes(page.get()), 3U);
}

// Eight processes at once, for the last 100 bytes, in a hundred rounds: exactly one gets them.
TEST(lease, one_of_many_gets_the_last_bytes) {
  constexpr uint32_t kRacers = 8;
  constexpr int kRounds = 100;
  const SharedPage page(1000);
  const SharedPage board(0);  // its slots are the racers' places: round reached, times won
  CHECK(Charge(page.get(), kRacers, 900));
  std::vector<pid_t> children;
  for (uint32_t slot = 0; slot < kRacers; ++slot) {
    const pid_t child = fork();
    if (child == 0) {
      Slot& own = board->slots[slot];
      for (uint64_t round = 1; round <= kRounds; ++round) {
        while (board->slots[kRacers].session.load() < round) sched_yield();
        if (Charge(page.get(), slot, 100)) own.launches.fetch_add(1);
        own.session = round;
      }
      _exit(0);
    }
    children.push_back(child);
  }
  for (uint64_t round = 1; round <= kRounds; ++round) {
    board->slots[kRacers].session = round;
    for (uint32_t slot = 0; slot < kRacers; ++slot) {
      while (board->slots[slot].session.load() < round) sched_yield();
    }
    CHECK_EQ(UsedBytes(page.get()), 1000U);
    for (uint32_t slot = 0; slot < kRacers; ++slot) Release(page.get(), slot, 100);
  }
  for (const pid_t child : children) WaitFor(child, 0);
  uint64_t won = 0;
  for (uint32_t slot = 0; slot < kRacers; ++slot) won += board->slots[slot].launches.load();
  CHECK_EQ(won, static_cast<uint64_t>(kRounds));
}

// Killed while they race: what a dead process had charged stays in its slot until the daemon clears
// it, and then all of the limit is there again.
TEST(lease, killed_racers_lose_nothing) {
  NeedsRobustMutexes();
  const SharedPage page(1U << 20);
  for (uint32_t slot = 0; slot < 6; ++slot) {
    const pid_t child = fork();
    if (child == 0) {
      for (;;) {
        if (Charge(page.get(), slot, 4096)) Release(page.get(), slot, 4096);
      }
    }
    while (page->slots[slot].peak_bytes.load() == 0) sched_yield();
    for (int i = 0; i < 200; ++i) {
      if (Charge(page.get(), 10, 1)) Release(page.get(), 10, 1);
    }
    CHECK_EQ(kill(child, SIGKILL), 0);
    WaitFor(child, SIGKILL);
    CHECK(page->slots[slot].used_bytes.load() % 4096 == 0);
    ClearSlot(page.get(), slot);
    CHECK(Charge(page.get(), 10, 1U << 20));
    Release(page.get(), 10, 1U << 20);
  }
}

TEST(lease, a_stopped_owner_of_the_mutex_delays_and_no_more) {
  const SharedPage page(1000);
  const pid_t child = fork();
  if (child == 0) {
    pthread_mutex_lock(&page->mutex);
    raise(SIGSTOP);
    pthread_mutex_unlock(&page->mutex);
    _exit(0);
  }
  int status = 0;
  CHECK_EQ(waitpid(child, &status, WUNTRACED), child);
  const uint64_t before = base::NowNs();
  CHECK(!Charge(page.get(), 0, 1));
  const uint64_t waited = base::NowNs() - before;
  CHECK(waited > 1'000'000'000U && waited < 10'000'000'000U);
  CHECK_EQ(kill(child, SIGCONT), 0);
  CHECK(Charge(page.get(), 0, 1));
  WaitFor(child, 0);
  CHECK_EQ(UsedBytes(page.get()), 1U);
}

TEST(lease, what_is_held_counts_above_the_limit) {
  const SharedPage page(100);
  Count(page.get(), 0, 150);
  CHECK_EQ(UsedBytes(page.get()), 150U);
  CHECK_EQ(page->slots[0].peak_bytes.load(), 150U);
  CHECK(!TryCharge(page.get(), 1, 1));
  CHECK_EQ(page->slots[1].refused.load(), 0U);
  Release(page.get(), 0, 51);
  CHECK(TryCharge(page.get(), 1, 1));
}

TEST(lease, a_slot_says_what_it_is_freeing) {
  const SharedPage page(100);
  CHECK_EQ(FreeingByOthers(page.get(), 0), 0U);
  SetFreeing(page.get(), 0, 7);
  SetFreeing(page.get(), 1, UINT64_MAX - 2);
  SetFreeing(page.get(), kSlots, 1);
  CHECK_EQ(FreeingByOthers(page.get(), 1), 7U);
  SetFreeing(page.get(), 2, 5);
  CHECK_EQ(FreeingByOthers(page.get(), 0), UINT64_MAX);
  ClearSlot(page.get(), 1);
  CHECK_EQ(FreeingByOthers(page.get(), 0), 5U);
}

}  // namespace
}  // namespace rgpu::lease
