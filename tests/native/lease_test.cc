#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

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

TEST(lease, a_killed_owner_of_the_mutex_does_not_block) {
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

}  // namespace
}  // namespace rgpu::lease
