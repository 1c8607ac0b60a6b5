// Random programs of two leases on one device: no work of the one runs while the other has the
// token, all work is done, and whoever waits is woken (gate_model.h has the rules).
#include "tests/native/gate_model.h"
#include "tests/native/testing.h"

namespace rgpu::exec::model {
namespace {

constexpr uint64_t kSeeds = 400;

TEST(gate, random_programs_of_two_leases_never_meet_and_come_to_their_end) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) World(seed, 20 + seed % 100).Run();
}

}  // namespace
}  // namespace rgpu::exec::model
