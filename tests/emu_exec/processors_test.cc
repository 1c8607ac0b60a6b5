#include "rgpu_emu/device/exec/processors.h"

#include <thread>

#include "tests/native/testing.h"

namespace rgpu::emu::testing {
namespace {

cpu_set_t Allowed() {
  cpu_set_t set;
  CPU_ZERO(&set);
  CHECK_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  return set;
}

// As many threads as there are processors.
unsigned Most() {
  const cpu_set_t set = Allowed();
  return static_cast<unsigned>(CPU_COUNT(&set));
}

TEST(processors, pool_threads_have_one_each) {
  const Processors processors(Most());
  cpu_set_t taken;
  CPU_ZERO(&taken);
  for (unsigned index = 0; index + 1 < Most(); ++index) {
    std::thread([&] {
      processors.Settle(index);
      const cpu_set_t own = Allowed();
      CHECK_EQ(CPU_COUNT(&own), 1);
      CPU_OR(&taken, &taken, &own);
    }).join();
  }
  CHECK_EQ(static_cast<unsigned>(CPU_COUNT(&taken)), Most() - 1);
}

TEST(processors, the_caller_makes_room) {
  if (Most() < 2) return;  // there is nowhere to go
  const Processors processors(Most());
  std::thread([&] {
    const cpu_set_t all = Allowed();
    processors.Settle(0);
    const cpu_set_t pool = Allowed();
    // The system may move it back at any moment, but not each time.
    int left = 0;
    for (int i = 0; i < 20; ++i) {
      CHECK_EQ(sched_setaffinity(0, sizeof pool, &pool), 0);
      CHECK_EQ(sched_setaffinity(0, sizeof all, &all), 0);
      processors.MakeRoom();
      left += CPU_ISSET(sched_getcpu(), &pool) ? 0 : 1;
      const cpu_set_t now = Allowed();
      CHECK(CPU_EQUAL(&now, &all));
    }
    CHECK(left > 0);
  }).join();
}

TEST(processors, more_threads_than_processors_are_left_to_the_system) {
  const Processors processors(Most() + 1);
  std::thread([&] {
    const cpu_set_t before = Allowed();
    processors.Settle(0);
    processors.MakeRoom();
    const cpu_set_t after = Allowed();
    CHECK(CPU_EQUAL(&before, &after));
  }).join();
}

}  // namespace
}  // namespace rgpu::emu::testing
