// Which element of a matrix each register of each thread holds.
//
// A multiplicand is seen as rows of `depth` elements along k: the rows of A, the columns of B. A
// register holds consecutive elements of one row; a register pair holds one f64.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rgpu_emu/device/kernel_abi.h"

namespace rgpu::emu {

constexpr uint32_t MatrixBits(MatrixType type) {
  switch (type) {
    case kMatrixF16:
    case kMatrixBf16:
      return 16;
    case kMatrixE4m3:
    case kMatrixE5m2:
    case kMatrixU8:
    case kMatrixS8:
      return 8;
    case kMatrixU4:
    case kMatrixS4:
      return 4;
    case kMatrixB1:
      return 1;
    case kMatrixF64:
      return 64;
    default:
      return 32;
  }
}

struct MatrixPlace {
  size_t row;
  size_t column;
};

// The registers of one multiplicand.
struct MultiplicandLayout {
  bool wmma;
  size_t rows;
  size_t depth;
  size_t each;   // elements in a register
  size_t count;  // registers of each thread

  MultiplicandLayout(bool is_wmma, size_t row_count, size_t row_depth, MatrixType type)
      : wmma(is_wmma), rows(row_count), depth(row_depth) {
    each = MatrixBits(type) < 32 ? 32 / MatrixBits(type) : 1;
    // The manual gives every f16 multiplicand of wmma eight registers.
    count = wmma && type == kMatrixF16 ? 8 : rows * depth / (32 * each);
  }

  // Where the first element of a register belongs. For mma this is the PTX manual's: a group of
  // four threads holds a row, and in matrices of 16 rows every other register is 8 rows below. For
  // wmma the order is ours, row after row; elements that two threads hold are the same.
  MatrixPlace Place(size_t lane, size_t index) const {
    if (wmma) {
      const size_t at = (lane * count + index) * each % (rows * depth);
      return {at / depth, at % depth};
    }
    const size_t group = lane >> 2;
    const size_t first = (lane & 3) * each;
    if (rows == 16) return {group + 8 * (index & 1), first + 4 * each * (index >> 1)};
    return {group, first + 4 * each * index};
  }
};

// Where element `index` of a thread's accumulator belongs.
inline MatrixPlace AccumulatorPlace(bool wmma, size_t m, size_t n, size_t lane, size_t index) {
  if (wmma) {
    const size_t at = lane * (m * n / 32) + index;
    return {at / n, at % n};
  }
  return {(lane >> 2) + 8 * (index >> 1), (lane & 3) * 2 + (index & 1)};
}

}  // namespace rgpu::emu
