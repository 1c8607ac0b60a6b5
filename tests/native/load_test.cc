#include "rgpu_server/executor/gate/load.h"

#include "tests/native/testing.h"

namespace rgpu::exec {
namespace {

constexpr uint64_t kKib = 1024;

std::shared_ptr<Estimate> Copies() { return std::make_shared<Estimate>(0.25, 64 * kKib, 16); }

Load LoadOf(const std::shared_ptr<Estimate>& kind, uint64_t units) {
  Load load;
  load.Add(kind, units);
  return load;
}

TEST(load, a_small_copy_says_nothing_about_large_ones) {
  const auto copies = Copies();
  CHECK_EQ(copies->Predict(4), copies->Predict(64 * kKib));
  LoadOf(copies, 4).Measured(2'000);
  CHECK(copies->measured);
  CHECK(copies->Predict(256 * kKib) <= 20'000);  // and not 131 ms
}

TEST(load, small_copies_count_one_by_one) {
  const auto copies = Copies();
  Load load;
  for (int i = 0; i < 32; ++i) load.Add(copies, 4);
  CHECK_EQ(load.ns(), 32 * copies->Predict(4));
  load.Measured(load.ns());  // as predicted
  CHECK_EQ(copies->Predict(kKib * kKib), Copies()->Predict(kKib * kKib));
}

TEST(load, the_first_guess_of_a_copy_is_trusted_within_bounds) {
  const auto slow = Copies();
  LoadOf(slow, 256 * kKib).Measured(10'000'000'000);
  CHECK_EQ(slow->Predict(kKib * kKib), 16 * Copies()->Predict(kKib * kKib));
  const auto fast = Copies();
  LoadOf(fast, 256 * kKib).Measured(0);
  CHECK(fast->Predict(kKib * kKib) >= Copies()->Predict(kKib * kKib) / 16);
}

// Nobody knows how long a kernel takes before it has run.
TEST(load, the_first_measurement_of_a_kernel_counts_alone) {
  const auto kernel = std::make_shared<Estimate>(2'500'000.0);
  LoadOf(kernel, 1).Measured(1'000);
  CHECK_EQ(kernel->Predict(1), 1'000U);
  LoadOf(kernel, 1).Measured(1'000'000);  // later ones count in part
  CHECK_EQ(kernel->Predict(1), 2'500U);
}

}  // namespace
}  // namespace rgpu::exec
