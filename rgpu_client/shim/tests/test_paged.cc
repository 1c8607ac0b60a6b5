// Tests of the memory that host and device use: states of pages, differences, and advice.
#include <sys/mman.h>

#include <cstring>
#include <random>
#include <vector>

#include "rgpu_client/shim/paged/difference.h"
#include "rgpu_client/shim/paged/page_states.h"
#include "rgpu_client/shim/paged/two_views.h"
#include "rgpu_client/shim/tests/check.h"
#include "rgpu_common/native/base/advice.h"

namespace {

using namespace rgpu::shim;
using rgpu::base::Advice;

// Does what a touch asks for.
void Follow(PageStates& pages, const Touch& touch, bool settled) {
  if (touch.fetch.count != 0) pages.SetFetched(touch.fetch, settled);
  if (touch.write.count != 0) pages.SetDirty(touch.write, settled);
}

constexpr CUmemLocation kGpu = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
constexpr CUmemLocation kHost = {CU_MEM_LOCATION_TYPE_HOST, 0};

int Int(const Advice& advice, CUmem_range_attribute attribute, uint64_t address, uint64_t bytes) {
  int value = -77;
  CHECK(advice.Get(&value, sizeof value, attribute, address, bytes) == CUDA_SUCCESS);
  return value;
}

}  // namespace

TEST(NewPagesNeedNoFetch) {
  PageStates pages(4);
  const Touch read = pages.OnTouch(0, false, true);
  CHECK(read.fetch.count == 0 && read.write.count == 0);
  const Touch write = pages.OnTouch(1, true, true);
  CHECK(write.fetch.count == 0 && write.write == (PageRun{1, 3}));
  CHECK(pages.any_valid() && !pages.any_dirty());
}

TEST(APageIsFetchedOnceAndThenWritten) {
  PageStates pages(1000);
  pages.Drop();
  CHECK(!pages.any_valid() && pages.Valid() == PageRun{});
  Touch touch = pages.OnTouch(500, false, true);
  CHECK(touch.fetch == (PageRun{500, 8}) && touch.write.count == 0);
  Follow(pages, touch, true);
  CHECK(pages.Valid() == (PageRun{500, 8}));
  // Another thread's touch of the same page finds it there.
  touch = pages.OnTouch(500, false, true);
  CHECK(touch.fetch.count == 0 && touch.write.count == 0);
  Follow(pages, pages.OnTouch(503, true, true), true);
  CHECK(pages.Dirty() == (std::vector<PageRun>{{503, 5}}));
  pages.SetClean({503, 5});
  CHECK(!pages.any_dirty() && pages.Valid() == (PageRun{500, 8}));
}

TEST(WindowsGrowForAProgramThatGoesInOrder) {
  PageStates pages(1000);
  pages.Drop();
  std::vector<uint64_t> counts;
  for (uint64_t page = 0; page < pages.pages();) {
    const Touch touch = pages.OnTouch(page, false, true);
    Follow(pages, touch, true);
    counts.push_back(touch.fetch.count);
    page = touch.fetch.end();
  }
  std::vector<uint64_t> expected{8, 16, 32};
  expected.insert(expected.end(), 14, 64);
  expected.push_back(48);
  CHECK(counts == expected);
  pages.Drop();
  CHECK(pages.OnTouch(700, false, true).fetch == (PageRun{700, 8}));
  CHECK(pages.OnTouch(100, false, true).fetch == (PageRun{100, 8}));
}

// Beside the program's bytes in an unsettled page may be new ones of the device, so only the page
// that was written may count as written.
TEST(UnsettledPagesBecomeDirtyOneByOne) {
  PageStates pages(100);
  pages.Drop();
  const Touch touch = pages.OnTouch(10, true, false);
  CHECK(touch.fetch == (PageRun{10, 8}) && touch.write == (PageRun{10, 1}));
  Follow(pages, touch, false);
  CHECK(pages.any_unsettled() && pages.unsettled(10) && pages.unsettled(17) &&
        !pages.unsettled(18));
  // The page was fetched while work was outstanding: it stays unsettled when there is none.
  const Touch later = pages.OnTouch(12, true, true);
  CHECK(later.write == (PageRun{12, 1}));
  Follow(pages, later, true);
  CHECK(pages.unsettled(12));
  CHECK(pages.Dirty() == (std::vector<PageRun>{{10, 1}, {12, 1}}));
  pages.Drop();
  CHECK(!pages.any_unsettled() && !pages.any_dirty() && !pages.any_valid());
}

// Random touches, compared with a model that knows what each side has.
TEST(PagesNeverShowOldBytesAndNoWriteIsLost) {
  std::mt19937 random(7);
  constexpr uint64_t kPages = 300;
  PageStates pages(kPages);
  std::vector<int> device(kPages), host(kPages);
  for (int step = 0; step < 20000; ++step) {
    const uint64_t page = random() % kPages;
    if (random() % 50 == 0) {  // a command: the dirty pages are sent, then the device writes some
      for (const PageRun& run : pages.Dirty()) {
        for (uint64_t at = run.first; at < run.end(); ++at) device[at] = host[at];
      }
      pages.Drop();
      for (int writes = 0; writes < 20; ++writes) device[random() % kPages] = step;
      continue;
    }
    const bool write = random() % 2 == 0;
    const Touch touch = pages.OnTouch(page, write, true);
    for (uint64_t at = touch.fetch.first; at < touch.fetch.end(); ++at) {
      CHECK(pages.state(at) == PageState::kInvalid);
      host[at] = device[at];
    }
    Follow(pages, touch, true);
    CHECK(pages.state(page) == PageState::kDirty || (!write && host[page] == device[page]));
    if (write) host[page] = -step;
  }
}

TEST(DifferencesAreExactAtTheirEnds) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    std::vector<uint8_t> before(1 + random() % 5000);
    std::vector<uint8_t> now = before;
    for (auto i = random() % 20; i > 0; --i) now[random() % now.size()] ^= 1;
    std::vector<uint8_t> patched = before;
    uint64_t last = 0;
    for (const ByteRun& run : Difference(now.data(), before.data(), now.size())) {
      CHECK(run.bytes > 0 && run.end() <= now.size() && (last == 0 || run.offset >= last + 4));
      CHECK(now[run.offset] != before[run.offset] && now[run.end() - 1] != before[run.end() - 1]);
      for (uint64_t at = run.offset; at < run.end(); ++at) patched[at] = now[at];
      last = run.end();
    }
    CHECK(patched == now);
  }
  const std::vector<uint8_t> zeros(20);
  const std::vector<uint8_t> numbers = {1, 0, 0, 0, 2, 9, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 7, 0, 0};
  CHECK(Difference(numbers.data(), zeros.data(), 20) ==
        (std::vector<ByteRun>{{0, 6}, {10, 1}, {17, 1}}));
}

TEST(MergeKeepsWhatTheHostHasWritten) {
  std::vector<uint8_t> before(200, 1), host = before, fresh = before;
  host[5] = 9;   // the host's
  fresh[6] = 8;  // the device's, beside it
  host[70] = 3;  // both
  fresh[70] = 4;
  fresh[199] = 2;
  Merge(host.data(), before.data(), fresh.data(), host.size());
  CHECK(host[5] == 9 && host[6] == 8 && host[70] == 3 && host[199] == 2 && host[0] == 1);
  CHECK(before == fresh);
  // What the host has changed differs from `before`, so that it is sent again.
  CHECK(Difference(host.data(), before.data(), host.size()) ==
        (std::vector<ByteRun>{{5, 1}, {70, 1}}));
}

TEST(TwoViewsHaveTheSamePages) {
  constexpr uint64_t kBytes = 16 * kPageBytes;
  void* place = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto base = reinterpret_cast<uint64_t>(place);
  {
    const auto views = TwoViews::Map(base, kBytes);
    CHECK(views != nullptr);
    memset(views->at(5 * kPageBytes), 7, kPageBytes);
    CHECK(static_cast<const uint8_t*>(place)[5 * kPageBytes + 9] == 7);
    CHECK(views->Allow({6, 1}, PageAccess::kWrite));
    static_cast<uint8_t*>(place)[6 * kPageBytes] = 5;
    CHECK(*views->at(6 * kPageBytes) == 5);
    CHECK(views->Allow({0, 16}, PageAccess::kNone));
    CHECK(*views->at(6 * kPageBytes) == 5);
  }
  CHECK(mprotect(place, kBytes, PROT_NONE) == 0);  // still a reservation
  munmap(place, kBytes);
}

TEST(AdviceIsRememberedByRange) {
  Advice advice;
  constexpr uint64_t kBase = 0x10000;
  advice.Advise(kBase + 100, 200, CU_MEM_ADVISE_SET_READ_MOSTLY, kGpu);
  const auto mostly = CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY;
  CHECK(Int(advice, mostly, kBase + 100, 200) == 1);
  CHECK(Int(advice, mostly, kBase + 99, 2) == 0 && Int(advice, mostly, kBase + 299, 2) == 0);
  advice.Advise(kBase + 150, 10, CU_MEM_ADVISE_UNSET_READ_MOSTLY, kGpu);
  CHECK(Int(advice, mostly, kBase + 100, 200) == 0 && Int(advice, mostly, kBase + 160, 140) == 1);
  const auto preferred = CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION;
  CHECK(Int(advice, preferred, kBase, 1000) == -2);
  advice.Advise(kBase, 1000, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, kHost);
  CHECK(Int(advice, preferred, kBase, 1000) == -1);
  CHECK(Int(advice, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, kBase, 1000) ==
        CU_MEM_LOCATION_TYPE_HOST);
  advice.Prefetch(kBase, 500, kGpu);
  const auto prefetched = CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION;
  CHECK(Int(advice, prefetched, kBase, 500) == 0 && Int(advice, prefetched, kBase, 501) == -2);
  advice.Advise(kBase, 8, CU_MEM_ADVISE_SET_ACCESSED_BY, kGpu);
  advice.Advise(kBase, 8, CU_MEM_ADVISE_SET_ACCESSED_BY, kHost);
  int devices[3] = {};
  const auto by = CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY;
  CHECK(advice.Get(devices, sizeof devices, by, kBase, 8) == CUDA_SUCCESS);
  CHECK(devices[0] == 0 && devices[1] == -1 && devices[2] == -2);
  CHECK(advice.Get(devices, 3, by, kBase, 8) == CUDA_ERROR_INVALID_VALUE);
  CHECK(advice.Get(devices, 8, mostly, kBase, 8) == CUDA_ERROR_INVALID_VALUE);
  advice.Forget(kBase, 1000);
  CHECK(Int(advice, preferred, kBase, 1) == -2 && Int(advice, mostly, kBase + 160, 1) == 0);
}
