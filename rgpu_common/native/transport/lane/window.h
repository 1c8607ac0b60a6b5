// The retransmit window: the bytes of a stream that were sent and are not yet acknowledged.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace rgpu::transport {

// Keep copies bytes into chunks, which are allocated when needed. A free chunk that was used last
// is used again first, while the cache still holds it. Lent bytes are not copied; they stay in
// their owner's memory until TakeBack. One thread at a time may use a window.
class Window {
 public:
  static constexpr size_t kChunkBytes = 64U << 10;

  uint64_t begin() const { return begin_; }
  uint64_t end() const { return end_; }
  // Appends a copy of the bytes.
  void Keep(const void* data, size_t bytes);
  // Appends bytes that do not change until TakeBack.
  void Lend(const void* data, size_t bytes);
  // Ends a loan: copies the lent bytes in [from, from + bytes) that are not yet released.
  void TakeBack(const void* from, size_t bytes);
  // Drops the bytes before `offset`, and no more than there are.
  void Release(uint64_t offset);
  // Sets `parts` to the memory that holds the bytes [from, to), as far as `limit` parts reach.
  // Returns the number of parts.
  int Gather(uint64_t from, uint64_t to, iovec* parts, int limit) const;

 private:
  static constexpr size_t kSpareChunks = 256;
  using Chunk = std::unique_ptr<uint8_t[]>;
  // A run of bytes in one piece of memory. Segments are adjacent and in order.
  struct Segment {
    uint64_t end = 0;  // offset after its last byte
    size_t bytes = 0;
    const uint8_t* data = nullptr;
    Chunk chunk;  // null: the bytes are lent

    uint64_t begin() const { return end - bytes; }
    bool has_room() const { return chunk != nullptr && bytes < kChunkBytes; }
  };

  Segment NewSegment(uint64_t offset);
  void Drop(Segment& segment);
  // Appends a copy of the bytes to `segments`.
  void CopyTo(std::deque<Segment>& segments, uint64_t offset, const uint8_t* data, size_t bytes);

  std::deque<Segment> segments_;
  std::vector<Chunk> spare_;
  uint64_t begin_ = 0;
  uint64_t end_ = 0;
};

}  // namespace rgpu::transport
