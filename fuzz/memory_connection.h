// A connection that ends: what a peer sent, handed out in pieces; what is sent to it vanishes.
#pragma once

#include <algorithm>
#include <cstring>

#include "rgpu_common/native/transport/transport.h"

namespace rgpu::fuzz {

class MemoryConnection final : public transport::Connection {
 public:
  // `piece`: the most bytes that one TryRecv gives.
  MemoryConnection(const uint8_t* data, size_t size, size_t piece)
      : data_(data), left_(size), piece_(std::max<size_t>(1, piece)) {}

  transport::IoResult TrySend(const iovec* parts, int count) override {
    size_t bytes = 0;
    for (int i = 0; i < count; ++i) bytes += parts[i].iov_len;
    return {transport::IoState::kDone, bytes, 0};
  }
  transport::IoResult TryRecv(void* to, size_t bytes) override {
    // Now and then nothing is there yet, as on a real network.
    if (++calls_ % 3 == 0) return {transport::IoState::kWouldBlock, 0, 0};
    if (left_ == 0) return {transport::IoState::kClosed, 0, 0};
    const size_t size = std::min({bytes, left_, piece_});
    std::memcpy(to, data_, size);
    data_ += size;
    left_ -= size;
    return {transport::IoState::kDone, size, 0};
  }
  int Wait(int events, int) override {
    return events & (transport::kReadable | transport::kWritable);
  }
  void Wake() override {}
  void Shutdown() override { left_ = 0; }
  void Abandon() override { left_ = 0; }
  const char* kind() const override { return "memory"; }

  size_t left() const { return left_; }

 private:
  const uint8_t* data_;
  size_t left_;
  size_t piece_;
  unsigned calls_ = 0;
};

}  // namespace rgpu::fuzz
