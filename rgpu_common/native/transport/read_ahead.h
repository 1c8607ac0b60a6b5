// Bytes that were read ahead from a link, for code that takes units (records, blocks) out of it.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>

#include "rgpu_common/native/base/probe.h"
#include "rgpu_common/native/transport/receiving.h"
#include "rgpu_common/native/wire/codec.h"

namespace rgpu::transport {

// When some bytes have been taken already, a link is read for more only if at least this many are
// still wanted.
inline constexpr size_t kDirectBytes = 4096;

// One thread at a time may use it.
class ReadAhead {
 public:
  static constexpr size_t kCapacity = 32U << 10;

  // Allocates the memory. `ahead` holds bytes that were read before, at most kCapacity.
  void Start(wire::ByteView ahead) {
    memory_ = std::make_unique_for_overwrite<uint8_t[]>(kCapacity);
    end_ = std::min<size_t>(ahead.size, kCapacity);
    if (end_ > 0) std::memcpy(memory_.get(), ahead.data, end_);
  }
  size_t bytes() const { return end_ - begin_; }
  const uint8_t* data() const { return memory_.get() + begin_; }
  // Removes the first `bytes`.
  void Drop(size_t bytes) { begin_ += bytes; }
  void Clear() { begin_ = end_ = 0; }
  // Removes the first sizeof(T) bytes and returns them as a T.
  template <typename T>
  T Pop() {
    T value;
    std::memcpy(&value, data(), sizeof value);
    Drop(sizeof value);
    return value;
  }
  // Receives at most `limit` bytes more from `link`. Waits for the first of them if `how` is
  // kBlock.
  IoState Refill(Connection& link, size_t limit, How how) {
    if (begin_ == end_) {
      Clear();
    } else if (begin_ > 0) {
      std::memmove(memory_.get(), data(), bytes());
      end_ -= begin_;
      begin_ = 0;
    }
    const IoResult result = Receive(link, memory_.get() + end_, std::min(limit, kCapacity - end_),
                                    how == How::kBlock ? How::kBlock : How::kTry);
    if (result.ok()) end_ += result.bytes;
    return result.state;
  }

 private:
  std::unique_ptr<uint8_t[]> memory_;
  size_t begin_ = 0;
  size_t end_ = 0;
};

// Copies bytes to a receiver's memory. False: the memory cannot be written (tested if `how` is
// kGuarded).
inline bool CopyOut(uint8_t* to, const uint8_t* from, size_t bytes, How how) {
  if (how == How::kGuarded && !base::CanWrite(to, bytes)) return false;
  std::memcpy(to, from, bytes);
  return true;
}

}  // namespace rgpu::transport
