// Rows of host memory: where the packed bytes of a copy come from or go to.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <vector>

#include "rgpu_common/native/transport/frame_io.h"

namespace rgpu::shim {

// `height` rows of `width` bytes, `pitch` bytes apart.  Only these bytes are ever touched.
struct HostRegion {
  uint8_t* base = nullptr;
  uint64_t width = 0;
  uint64_t height = 1;
  uint64_t pitch = 0;

  uint64_t bytes() const { return width * height; }
  bool contiguous() const { return height <= 1 || pitch == width; }
  // Bytes from the first to behind the last that is touched.
  uint64_t span() const { return height == 0 ? 0 : (height - 1) * pitch + width; }
  bool Meets(uint64_t address, uint64_t count) const {
    const auto begin = reinterpret_cast<uint64_t>(base);
    return begin < address + count && address < begin + span();
  }
};

// Moves `bytes` of the reader's frame to the packed offset in the region.  kFault: some of it
// cannot be written; the bytes are gone, the stream is in step.  The caller has checked the bounds.
transport::BulkState Land(const HostRegion& region, uint64_t offset, uint64_t bytes,
                          transport::FrameReader& reader);

// The pieces of memory that hold `bytes` packed bytes from `offset` on.
std::vector<iovec> Pieces(const HostRegion& region, uint64_t offset, uint64_t bytes);

// Packs `bytes` from `offset` on into `to`.
void Pack(const HostRegion& region, uint64_t offset, uint64_t bytes, uint8_t* to);

}  // namespace rgpu::shim
