// Comparing memory with an earlier copy of it.
#pragma once

#include <cstdint>
#include <vector>

namespace rgpu::shim {

struct ByteRun {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t end() const { return offset + bytes; }
  bool operator==(const ByteRun&) const = default;
};

// The bytes in which `now` differs from `before`, exact where a run begins and ends. Up to three
// equal bytes between two different ones count as different, or a run would often be two bytes.
std::vector<ByteRun> Difference(const uint8_t* now, const uint8_t* before, uint64_t bytes);

// Brings what the device has changed to the host: `fresh` is the device's memory now, `before` the
// memory as both sides had it. A byte that the host has changed since then stays. Afterwards
// `before` is `fresh`. Bytes that the device has not changed are not written, because the program
// may be writing them.
void Merge(uint8_t* host, uint8_t* before, const uint8_t* fresh, uint64_t bytes);

}  // namespace rgpu::shim
