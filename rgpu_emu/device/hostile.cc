#include "rgpu_emu/device/hostile.h"

#include <time.h>

#include <atomic>

namespace rgpu::emu {
namespace {

constexpr size_t kQueueLimit = 1024;
// Still more commands than a session may have outstanding in one stream. A queue smaller than any
// real driver's would cause deadlocks that do not exist with a real driver.
constexpr size_t kHostileQueueLimit = 640;
constexpr uint64_t kLongestPauseNs = 2000000;

std::atomic<bool> hostile{false};
std::atomic<uint64_t> state{0};

// SplitMix64; all threads draw from one seeded sequence.
uint64_t Draw() {
  uint64_t z = state.fetch_add(0x9E3779B97F4A7C15, std::memory_order_relaxed) + 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

}  // namespace

void StartHostile(bool on, uint64_t seed) {
  state.store(seed * 0xD1342543DE82EF95, std::memory_order_relaxed);
  hostile.store(on, std::memory_order_relaxed);
}

bool Hostile() { return hostile.load(std::memory_order_relaxed); }

void HostilePause() {
  if (!HostileChance(4)) return;
  // Squared: many short pauses and few long ones, so that the test suite does not take too long.
  const uint64_t draw = Draw() % 1024;
  const uint64_t ns = draw * draw * kLongestPauseNs / (1024UL * 1024);
  const timespec pause{0, static_cast<long>(ns)};
  nanosleep(&pause, nullptr);
}

bool HostileChance(uint32_t n) { return Hostile() && Draw() % n == 0; }

size_t QueueLimit() { return Hostile() ? kHostileQueueLimit : kQueueLimit; }

}  // namespace rgpu::emu
