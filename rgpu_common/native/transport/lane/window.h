// The retransmit window: the bytes of a stream that were sent and are not acknowledged.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace rgpu::transport {

// Bytes are copied into chunks, which come as they are needed; the one used last is used again
// first, while it is in the cache.  Or they stay where they are, lent, until TakeBack.  One thread
// at a time.
class Window {
 public:
  static constexpr size_t kChunkBytes = 64U << 10;

  uint64_t begin() const { return begin_; }
  uint64_t end() const { return end_; }
  // Appends a copy.
  void Keep(const void* data, size_t bytes);
  // Appends bytes that do not change until TakeBack.
  void Lend(const void* data, size_t bytes);
  // Copies what is still kept of the lent bytes in [from, from + bytes).
  void TakeBack(const void* from, size_t bytes);
  // Forgets what lies before `offset` (at most end()).
  void Release(uint64_t offset);
  // Where the bytes [from, to) lie, as far as `limit` parts reach.  Returns the number of parts.
  int Gather(uint64_t from, uint64_t to, iovec* parts, int limit) const;

 private:
  static constexpr size_t kSpareChunks = 256;
  using Chunk = std::unique_ptr<uint8_t[]>;
  // Adjacent, in order.
  struct Segment {
    uint64_t end = 0;  // offset behind its last byte
    size_t bytes = 0;
    const uint8_t* data = nullptr;
    Chunk chunk;  // null: lent

    uint64_t begin() const { return end - bytes; }
    bool has_room() const { return chunk != nullptr && bytes < kChunkBytes; }
  };

  Segment NewSegment(uint64_t offset);
  void Drop(Segment& segment);
  // Appends to `segments` copies of `bytes` at `data`.
  void CopyTo(std::deque<Segment>& segments, uint64_t offset, const uint8_t* data, size_t bytes);

  std::deque<Segment> segments_;
  std::vector<Chunk> spare_;
  uint64_t begin_ = 0;
  uint64_t end_ = 0;
};

}  // namespace rgpu::transport
