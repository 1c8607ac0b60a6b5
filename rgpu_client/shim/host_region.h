// Rows of host memory: the source or the target of a copy whose bytes travel packed.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <vector>

#include "rgpu_common/native/transport/frame_io.h"

namespace rgpu::shim {

// `height` rows of `width` bytes; the rows begin `pitch` bytes apart. Every `slice_rows` rows a
// slice begins, `slice_pitch` bytes after the one before (0: all rows are one slice). Bytes between
// rows are never touched.
struct HostRegion {
  uint8_t* base = nullptr;
  uint64_t width = 0;
  uint64_t height = 1;
  uint64_t pitch = 0;
  uint64_t slice_rows = 0;
  uint64_t slice_pitch = 0;

  uint64_t bytes() const { return width * height; }
  // From the first byte to that of a row.
  uint64_t RowAt(uint64_t row) const {
    if (slice_rows == 0) return row * pitch;
    return row / slice_rows * slice_pitch + row % slice_rows * pitch;
  }
  // True if these rows lie one after the other without gaps.
  bool contiguous(uint64_t first, uint64_t count) const {
    return count <= 1 || RowAt(first + count - 1) - RowAt(first) == (count - 1) * width;
  }
  bool contiguous() const { return contiguous(0, height); }
  // The distance from the first byte to the end of the last row.
  uint64_t span() const { return height == 0 ? 0 : RowAt(height - 1) + width; }
  bool Meets(uint64_t address, uint64_t count) const {
    const auto begin = reinterpret_cast<uint64_t>(base);
    return begin < address + count && address < begin + span();
  }
};

// Copies the rows of one region to those of another, which has as many of the same width.
void MoveRows(const HostRegion& to, const HostRegion& from);

// Copies `bytes` of bulk from the reader's frame to the packed offset in the region. kFault: some
// of the memory cannot be written; its bytes are dropped, and the reader stands at the next frame.
// The caller has checked the bounds.
transport::BulkState Land(const HostRegion& region, uint64_t offset, uint64_t bytes,
                          transport::FrameReader& reader);

// The pieces of memory that hold `bytes` packed bytes from `offset` on.
std::vector<iovec> Pieces(const HostRegion& region, uint64_t offset, uint64_t bytes);

// Copies `bytes` packed bytes of the region, from `offset` on, to `to`.
void Pack(const HostRegion& region, uint64_t offset, uint64_t bytes, uint8_t* to);

}  // namespace rgpu::shim
