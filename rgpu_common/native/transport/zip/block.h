// Blocks: the units that travel on a link that may compress. docs/reference/wire-format.md explains
// them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rgpu::transport::zip {

struct BlockHeader {
  uint32_t wire = 0;   // bytes that follow on the link
  uint32_t plain = 0;  // bytes of the stream that they stand for, and the bit kPacked

  size_t plain_bytes() const;
  bool packed() const;
  // False for a header that no correct peer sends.
  bool IsValid() const;
};
inline constexpr size_t kBlockHeaderBytes = 8;
static_assert(sizeof(BlockHeader) == kBlockHeaderBytes);

// A bit of `plain`: the bytes are one zstd frame.
inline constexpr uint32_t kPacked = 1U << 31;
// The largest raw block. It may be large, because the receiver needs no memory of its own for it.
inline constexpr size_t kMaxRawBytes = 1U << 20;
// The largest packed block: a piece of a copy, 256 KiB, and the heads around it.
inline constexpr size_t kMaxPackedBytes = (256U << 10) + (4U << 10);

inline size_t BlockHeader::plain_bytes() const { return plain & ~kPacked; }
inline bool BlockHeader::packed() const { return (plain & kPacked) != 0; }
inline bool BlockHeader::IsValid() const {
  if (wire == 0) return false;
  if (!packed()) return wire == plain && plain <= kMaxRawBytes;
  return plain_bytes() <= kMaxPackedBytes && wire < plain_bytes();
}

}  // namespace rgpu::transport::zip
