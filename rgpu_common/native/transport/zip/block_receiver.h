// The receiving half of a compressed link: takes the stream out of blocks, which may come from a
// hostile peer.
#pragma once

#include <atomic>
#include <memory>

#include "rgpu_common/native/transport/read_ahead.h"
#include "rgpu_common/native/transport/receiving.h"
#include "rgpu_common/native/transport/transport.h"
#include "rgpu_common/native/transport/zip/block.h"
#include "rgpu_common/native/transport/zip/block_sender.h"
#include "rgpu_common/native/transport/zip/zstd.h"
#include "rgpu_common/native/wire/codec.h"

namespace rgpu::transport::zip {

// One thread at a time may use it; any thread may call ready and malformed.
class BlockReceiver {
 public:
  BlockReceiver(const Api& api, Connection* link, Savings* savings)
      : link_(link), savings_(savings), unpacker_(api) {}

  // `ahead` holds bytes of the first blocks that have already been read, at most
  // ReadAhead::kCapacity.
  void Start(wire::ByteView ahead);
  // Even with kBlock the result may be kWouldBlock: bytes have arrived, but not yet a whole header
  // or packed block.
  IoResult Receive(void* to, size_t bytes, How how);
  // True if received bytes may be ready, so that a caller need not wait for the link.
  bool ready() const { return ready_.load(); }
  // True once the peer has sent bytes that are not a valid block.
  bool malformed() const { return malformed_.load(); }

 private:
  IoResult Take(uint8_t* to, size_t bytes, How how);
  IoState NextBlock(size_t hint, bool may_read, How how);
  IoState FillPacked(bool may_read, How how);
  IoState Unpack();
  IoState Malformed();
  size_t plain_bytes() const { return plain_end_ - plain_begin_; }

  Connection* const link_;
  Savings* const savings_;
  Unpacker unpacker_;
  ReadAhead raw_;
  BlockHeader header_;
  size_t left_ = 0;     // bytes of the block that are still to be read from the link
  bool large_ = false;  // the last block was large
  std::unique_ptr<uint8_t[]> packed_;
  std::unique_ptr<uint8_t[]> plain_;
  size_t plain_begin_ = 0;
  size_t plain_end_ = 0;
  std::atomic<bool> ready_{false};
  std::atomic<bool> malformed_{false};
};

}  // namespace rgpu::transport::zip
