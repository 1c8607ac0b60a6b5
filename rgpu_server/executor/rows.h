// Divides rows of device memory into portions that fit one piece of staging memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "rgpu_common/native/wire/frame.h"

namespace rgpu::exec {

// `height` rows of `width` bytes, `pitch` apart. On the host side they lie packed, without gaps.
struct Rows {
  uint64_t address = 0;
  uint64_t pitch = 0;
  uint64_t width = 0;
  uint64_t height = 0;

  // Returns false if the product overflows.
  bool Total(uint64_t* bytes) const { return !__builtin_mul_overflow(width, height, bytes); }
};

struct Portion {
  uint64_t address = 0;
  uint64_t offset = 0;  // into the packed bytes
  uint64_t width = 0;
  uint64_t height = 0;  // more than 1 only if whole rows fit

  uint32_t bytes() const { return static_cast<uint32_t>(width * height); }
};

// Returns the portion that starts at packed byte `offset`, which is 0 or where a portion ended. The
// rows must not be empty.
inline Portion PortionAt(const Rows& rows, uint64_t offset) {
  const uint64_t row = offset / rows.width;
  const uint64_t column = offset % rows.width;
  const uint64_t address = rows.address + (rows.height > 1 ? row * rows.pitch : 0) + column;
  if (column == 0 && rows.width <= wire::kPieceBytes && rows.height > 1) {
    const uint64_t count = std::min(rows.height - row, wire::kPieceBytes / rows.width);
    return {address, offset, rows.width, count};
  }
  return {address, offset, std::min<uint64_t>(rows.width - column, wire::kPieceBytes), 1};
}

}  // namespace rgpu::exec
