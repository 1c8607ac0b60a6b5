// A queue of bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

namespace rgpu::gateway::http2 {

// A buffer that is filled at its end and emptied at its front. It allocates memory when it is
// filled for the first time.
class Body {
 public:
  size_t bytes() const { return end_ - begin_; }
  const uint8_t* data() const { return memory_.get() + begin_; }

  void Drop(size_t count) {
    begin_ += count;
    if (begin_ == end_) begin_ = end_ = 0;
  }

  // Returns room for `count` more bytes. Call `Filled` with the number of bytes written there.
  uint8_t* Room(size_t count) {
    if (capacity_ - end_ < count) Move(count);
    return memory_.get() + end_;
  }
  void Filled(size_t count) { end_ += count; }

  void Add(const uint8_t* from, size_t count) {
    if (count == 0) return;
    std::memcpy(Room(count), from, count);
    Filled(count);
  }

  // Drops all bytes and frees the memory.
  void Clear() {
    memory_.reset();
    begin_ = end_ = capacity_ = 0;
  }

 private:
  static constexpr size_t kSmallest = 4096;

  void Move(size_t count) {
    const size_t held = bytes();
    // Bytes are moved to the front only once a fifth of the buffer is empty there. Otherwise a slow
    // reader would make every added byte move all others.
    if (held + count > capacity_ - capacity_ / 5) {
      const size_t capacity = std::max(kSmallest, (held + count) / 4 * 5);
      auto memory = std::make_unique_for_overwrite<uint8_t[]>(capacity);
      if (held > 0) std::memcpy(memory.get(), data(), held);
      memory_ = std::move(memory);
      capacity_ = capacity;
    } else if (held > 0) {
      std::memmove(memory_.get(), data(), held);
    }
    begin_ = 0;
    end_ = held;
  }

  std::unique_ptr<uint8_t[]> memory_;
  size_t begin_ = 0;
  size_t end_ = 0;
  size_t capacity_ = 0;
};

}  // namespace rgpu::gateway::http2
