// Divides rows of device memory into portions that fit one piece of staging memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "gen/cuda_abi.gen.h"
#include "rgpu_common/native/wire/frame.h"

namespace rgpu::exec {

// A place in an array; x is in bytes.
struct ArrayPlace {
  CUarray array = nullptr;  // null: the rows lie in linear memory
  uint64_t x = 0;
  uint64_t y = 0;
  uint64_t z = 0;
};

// `depth` slices of `height` rows of `width` bytes. In linear memory rows begin `pitch` bytes apart
// and slices `rows` rows apart. On the host side they lie packed, without gaps.
struct Rows {
  uint64_t address = 0;
  uint64_t pitch = 0;
  uint64_t width = 0;
  uint64_t height = 0;
  uint64_t depth = 1;
  uint64_t rows = 0;
  ArrayPlace place = {};

  // Returns false if the product overflows.
  bool Total(uint64_t* bytes) const {
    return !__builtin_mul_overflow(width, height, bytes) &&
           !__builtin_mul_overflow(*bytes, depth, bytes);
  }
  bool linear() const { return place.array == nullptr; }
  bool flat() const { return linear() && depth == 1; }
};

struct Portion {
  uint64_t address = 0;  // in linear memory
  uint64_t offset = 0;   // into the packed bytes
  uint64_t width = 0;
  uint64_t height = 0;    // more than 1 only if whole rows fit
  uint64_t depth = 1;     // more than 1 only if whole slices fit
  ArrayPlace place = {};  // in an array

  uint32_t bytes() const { return static_cast<uint32_t>(width * height * depth); }
};

// Returns the portion that starts at packed byte `offset`, which is 0 or where a portion ended. The
// rows must not be empty.
inline Portion PortionAt(const Rows& rows, uint64_t offset) {
  const uint64_t slice_bytes = rows.width * rows.height;
  const uint64_t slice = offset / slice_bytes;
  const uint64_t row = offset % slice_bytes / rows.width;
  const uint64_t column = offset % rows.width;
  Portion portion;
  portion.offset = offset;
  portion.place = rows.place;
  if (rows.linear()) {
    const uint64_t before = slice * rows.rows + row;
    const bool several = rows.height > 1 || rows.depth > 1;
    portion.address = rows.address + (several ? before * rows.pitch : 0) + column;
  } else {
    portion.place.x += column;
    portion.place.y += row;
    portion.place.z += slice;
  }
  portion.height = 1;
  portion.width = std::min<uint64_t>(rows.width - column, wire::kPieceBytes);
  if (column != 0 || rows.width > wire::kPieceBytes) return portion;
  portion.height = std::min(rows.height - row, wire::kPieceBytes / rows.width);
  if (row == 0 && slice_bytes <= wire::kPieceBytes) {
    portion.depth = std::min(rows.depth - slice, wire::kPieceBytes / slice_bytes);
  }
  return portion;
}

}  // namespace rgpu::exec
