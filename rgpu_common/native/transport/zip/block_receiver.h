// The receiving half: a stream out of blocks, which a hostile peer may have made.
#pragma once

#include <atomic>
#include <memory>

#include "rgpu_common/native/transport/transport.h"
#include "rgpu_common/native/transport/zip/block.h"
#include "rgpu_common/native/transport/zip/block_sender.h"
#include "rgpu_common/native/transport/zip/zstd.h"
#include "rgpu_common/native/wire/codec.h"

namespace rgpu::transport::zip {

// One thread at a time, but for ready and malformed.
class BlockReceiver {
 public:
  // What is there, the same into memory that is perhaps not there, or wait for the first byte.
  enum class How : uint8_t { kTry, kGuarded, kBlock };
  static constexpr size_t kReadAheadBytes = 32U << 10;

  BlockReceiver(const Api& api, Connection* link, Savings* savings)
      : link_(link), savings_(savings), unpacker_(api) {}

  // `ahead`: bytes of the first blocks, at most kReadAheadBytes.
  void Start(wire::ByteView ahead);
  // With kBlock kWouldBlock comes also when the first byte is still to come of what did come.
  IoResult Receive(void* to, size_t bytes, How how);
  // There may be bytes that nobody has to be asked for.
  bool ready() const { return ready_.load(); }
  // The peer sent what is no block.
  bool malformed() const { return malformed_.load(); }

 private:
  IoResult Take(uint8_t* to, size_t bytes, How how);
  IoResult ReadLink(uint8_t* to, size_t bytes, How how);
  IoState NextBlock(size_t hint, bool may_read, How how);
  IoState Refill(size_t limit, How how);
  IoState FillPacked(bool may_read, How how);
  IoState Unpack();
  IoState Malformed();
  size_t raw_bytes() const { return raw_end_ - raw_begin_; }
  size_t plain_bytes() const { return plain_end_ - plain_begin_; }

  Connection* const link_;
  Savings* const savings_;
  Unpacker unpacker_;
  std::unique_ptr<uint8_t[]> raw_;  // bytes of the link that were read ahead
  size_t raw_begin_ = 0;
  size_t raw_end_ = 0;
  BlockHeader header_;
  size_t left_ = 0;     // of the block, bytes on the link
  bool large_ = false;  // so was the last one
  std::unique_ptr<uint8_t[]> packed_;
  std::unique_ptr<uint8_t[]> plain_;
  size_t plain_begin_ = 0;
  size_t plain_end_ = 0;
  std::atomic<bool> ready_{false};
  std::atomic<bool> malformed_{false};
};

}  // namespace rgpu::transport::zip
