// Tests of the client's table of memory credit. tests/native/credit_test.cc runs it against the
// worker's book.
#include "rgpu_client/shim/tables/memory_credit.h"
#include "rgpu_client/shim/tests/check.h"

namespace {

using namespace rgpu::shim;

constexpr uint64_t kBase = 0x2000'0000'0000;
constexpr uint64_t kPageSize = 4096;
constexpr uint64_t kMib = 1U << 20;

struct Ready {
  explicit Ready(uint64_t granted, uint64_t bytes = 64 * kMib) {
    credit.SetMost(8 * kMib);
    CHECK(credit.Open({kBase, bytes, kPageSize, kPageSize}));
    credit.Granted(granted);
  }
  MemoryCredit credit;
};

}  // namespace

TEST(CreditNeedsAUsableWindow) {
  MemoryCredit credit;
  CHECK(!credit.Open({kBase, kMib, 0, 0}));
  CHECK(!credit.Open({kBase, kMib, 3 * kPageSize, 0}));
  CHECK(!credit.Open({kBase, kMib, 256, 0}));
  CHECK(!credit.Open({kBase, kMib, kPageSize, 100}));
  CHECK(!credit.Open({kBase + 1, kMib, kPageSize, 0}));
  CHECK(!credit.Open({kBase, 0, kPageSize, 0}));
  CHECK(!credit.Open({~0ULL - kPageSize + 1, 2 * kPageSize, kPageSize, 0}));
  CHECK(credit.Open({kBase, kMib, kPageSize, kPageSize}));
  CHECK(credit.Open({kBase, kMib, kPageSize, kPageSize}));
  CHECK(!credit.Open({kBase + kMib, kMib, kPageSize, kPageSize}));
}

TEST(AnAllocationEndsAtItsLastGranule) {
  Ready ready(kMib);
  CHECK(ready.credit.Cut(1) == kBase + kPageSize - 512);
  CHECK(ready.credit.Cut(kPageSize) == kBase + 2 * kPageSize);
  CHECK(ready.credit.Cut(kPageSize + 513) == kBase + 5 * kPageSize - 1024);
}

TEST(CreditIsUsedUp) {
  Ready ready(3 * kPageSize);
  CHECK(!ready.credit.Cut(4 * kPageSize) && !ready.credit.Cut(~0ULL));
  CHECK(ready.credit.Cut(kPageSize + 1) && ready.credit.Cut(kPageSize));
  CHECK(!ready.credit.Cut(1));
  ready.credit.Granted(3 * kPageSize);  // said again
  CHECK(!ready.credit.Cut(1));
  ready.credit.Granted(4 * kPageSize);
  CHECK(ready.credit.Cut(1).has_value());
}

TEST(AddressesAreUsedAgainWhenTheFreeIsCarriedOut) {
  Ready ready(kMib, 4 * kPageSize);
  const auto first = ready.credit.Cut(kPageSize);
  const auto second = ready.credit.Cut(kPageSize);
  CHECK(first && second && !ready.credit.Cut(1));
  ready.credit.Free(*first, kPageSize, 7);
  CHECK(ready.credit.active() && !ready.credit.Cut(1));
  ready.credit.Freed(6);
  CHECK(!ready.credit.Cut(1));
  ready.credit.Freed(7);
  CHECK(ready.credit.Cut(kPageSize) == first);
  // The worker may be faster than the thread that frees.
  ready.credit.Freed(9);
  ready.credit.Free(*second, kPageSize, 8);
  CHECK(ready.credit.Cut(kPageSize) == second);
}

TEST(FreedAddressesAreUsedLate) {
  Ready ready(kMib);
  uint64_t last = 0;
  for (uint64_t i = 1; i < 100; ++i) {
    const auto address = ready.credit.Cut(kPageSize);
    CHECK(address && *address > last);
    last = *address;
    ready.credit.Free(*address, kPageSize, i);
    ready.credit.Freed(i);
  }
}

TEST(OnlyProgramsThatAllocateOftenAskForCredit) {
  Ready ready(0);
  CHECK(ready.credit.AskFor(64 * kMib).wish == 0);
  CHECK(ready.credit.AskFor(64 * kMib).wish == 0);
  CHECK(ready.credit.AskFor(kPageSize).wish == 0);
  CHECK(ready.credit.AskFor(kPageSize).wish == 4 * kPageSize);
  CHECK(ready.credit.AskFor(kPageSize).wish == 8 * kPageSize);
  CHECK(ready.credit.AskFor(64 * kMib).wish == 8 * kPageSize);
  CHECK(ready.credit.AskFor(3 * kMib).wish == 8 * kMib);
  CHECK(ready.credit.AskFor(3 * kMib).wish == 8 * kMib);
}

TEST(AllCreditGoesBackWithACallAndComesBackWithItsAnswer) {
  Ready ready(4 * kPageSize);
  CHECK(ready.credit.Cut(1).has_value());
  CHECK(ready.credit.AskFor(64 * kMib).returned == 3 * kPageSize);
  CHECK(!ready.credit.Cut(1) && !ready.credit.active());
  CHECK(ready.credit.AskFor(64 * kMib).returned == 3 * kPageSize);
  ready.credit.Granted(6 * kPageSize);
  CHECK(ready.credit.Cut(1).has_value());
  CHECK(ready.credit.GiveBack() == 4 * kPageSize);
  CHECK(!ready.credit.GiveBack());
  CHECK(ready.credit.AskFor(kPageSize).wish == 0);
}
