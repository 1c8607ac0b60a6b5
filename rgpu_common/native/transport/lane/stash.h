// Bytes that were received by a thread that only read acknowledgements, for the reader to take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rgpu::transport {

class Stash {
 public:
  size_t bytes() const { return memory_.size() - begin_; }
  const uint8_t* data() const { return memory_.data() + begin_; }
  void Add(const uint8_t* data, size_t bytes) { memory_.insert(memory_.end(), data, data + bytes); }
  // Removes the first `bytes`.
  void Drop(size_t bytes) {
    begin_ += bytes;
    if (begin_ < memory_.size()) return;
    memory_.clear();
    begin_ = 0;
    if (memory_.capacity() > kSpareBytes) memory_.shrink_to_fit();
  }

 private:
  static constexpr size_t kSpareBytes = 1U << 20;

  std::vector<uint8_t> memory_;
  size_t begin_ = 0;
};

}  // namespace rgpu::transport
