#include "rgpu_server/executor/granules.h"
#include "tests/native/testing.h"

namespace rgpu::exec {
namespace {

constexpr uint64_t kMib = 1U << 20;

// As NVIDIA's driver does it: small allocations lie together in pieces of 2 MiB.
TEST(granules, a_shared_granule_counts_once_until_its_last_allocation_goes) {
  Granules granules(2 * kMib);
  CHECK_EQ(granules.Add(0, 512), 2 * kMib);
  CHECK_EQ(granules.Add(512, 512), 0U);
  CHECK_EQ(granules.Add(2 * kMib - 512, 1024), 2 * kMib);  // across the border
  CHECK_EQ(granules.Remove(0, 512), 0U);
  CHECK_EQ(granules.Remove(512, 512), 0U);
  CHECK_EQ(granules.Remove(2 * kMib - 512, 1024), 4 * kMib);
  CHECK_EQ(granules.Add(0, 1), 2 * kMib);
}

TEST(granules, large_allocations_count_all_they_touch) {
  Granules granules(4096);
  CHECK_EQ(granules.Add(40960, 10 * kMib), 10 * kMib);
  CHECK_EQ(granules.Add(40960 + 10 * kMib, 1), 4096U);
  CHECK_EQ(granules.Remove(40960, 10 * kMib), 10 * kMib);
  CHECK_EQ(granules.Add(4096 * 100 - 1, 4098), 3 * 4096U);
  CHECK_EQ(granules.Remove(4096 * 100 - 1, 4098), 3 * 4096U);
}

}  // namespace
}  // namespace rgpu::exec
