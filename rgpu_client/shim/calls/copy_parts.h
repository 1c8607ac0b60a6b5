// Splits a copy into parts of a limited size.
#pragma once

#include <algorithm>

#include "rgpu_client/shim/calls/copies.h"

namespace rgpu::shim {

// A part of a copy: whole slices; or whole rows of one slice; or a part of one row.
struct Part {
  uint64_t slice = 0;
  uint64_t slices = 1;
  uint64_t row = 0;
  uint64_t rows = 1;
  uint64_t column = 0;
  uint64_t width = 0;
  bool last = false;

  uint64_t bytes() const { return slices * rows * width; }
};

// Calls visit for each part of one slice, in order, until it returns an error. A part has at most
// `limit` bytes.
template <typename Visit>
CUresult ForEachPartOfSlice(const Copy& copy, uint64_t limit, uint64_t slice, Visit visit) {
  const uint64_t rows_at_once = std::max<uint64_t>(1, limit / copy.width);
  for (uint64_t row = 0; row < copy.height; row += rows_at_once) {
    const uint64_t rows = std::min(rows_at_once, copy.height - row);
    for (uint64_t column = 0; column < copy.width; column += limit) {
      const uint64_t count = std::min(limit, copy.width - column);
      const bool last =
          slice + 1 == copy.depth && row + rows == copy.height && column + count == copy.width;
      const CUresult status = visit(Part{slice, 1, row, rows, column, count, last});
      if (status != CUDA_SUCCESS) return status;
    }
  }
  return CUDA_SUCCESS;
}

// The same for all slices. Several slices that fit together are one part.
template <typename Visit>
CUresult ForEachPart(const Copy& copy, uint64_t limit, Visit visit) {
  const uint64_t slice_bytes = copy.width * copy.height;
  const uint64_t together = limit / slice_bytes;
  for (uint64_t slice = 0; slice < copy.depth; slice += std::max<uint64_t>(1, together)) {
    CUresult status = CUDA_SUCCESS;
    if (together == 0) {
      status = ForEachPartOfSlice(copy, limit, slice, visit);
    } else {
      const uint64_t slices = std::min(together, copy.depth - slice);
      const bool last = slice + slices == copy.depth;
      status = visit(Part{slice, slices, 0, copy.height, 0, copy.width, last});
    }
    if (status != CUDA_SUCCESS) return status;
  }
  return CUDA_SUCCESS;
}

}  // namespace rgpu::shim
