#include "rgpu_client/shim/paged/difference.h"

#include <cstring>

namespace rgpu::shim {
namespace {

// Compares so many bytes at once while they are equal.
constexpr uint64_t kStride = 64;
// Numbers of 32 bits often change in their low bytes only.
constexpr uint64_t kSmallestGap = 4;

// The first offset from `at` on where the two differ; `bytes` if there is none.
uint64_t NextDifference(const uint8_t* one, const uint8_t* other, uint64_t at, uint64_t bytes) {
  while (bytes - at >= kStride && memcmp(one + at, other + at, kStride) == 0) at += kStride;
  while (at < bytes && one[at] == other[at]) ++at;
  return at;
}

}  // namespace

std::vector<ByteRun> Difference(const uint8_t* now, const uint8_t* before, uint64_t bytes) {
  std::vector<ByteRun> runs;
  for (uint64_t at = NextDifference(now, before, 0, bytes); at < bytes;
       at = NextDifference(now, before, at, bytes)) {
    const uint64_t first = at;
    while (at < bytes && now[at] != before[at]) ++at;
    if (!runs.empty() && first - runs.back().end() < kSmallestGap) {
      runs.back().bytes = at - runs.back().offset;
    } else {
      runs.push_back({first, at - first});
    }
  }
  return runs;
}

void Merge(uint8_t* host, uint8_t* before, const uint8_t* fresh, uint64_t bytes) {
  for (uint64_t at = NextDifference(fresh, before, 0, bytes); at < bytes;
       at = NextDifference(fresh, before, at, bytes)) {
    if (host[at] == before[at]) host[at] = fresh[at];
    before[at] = fresh[at];
    ++at;
  }
}

}  // namespace rgpu::shim
