#include "rgpu_common/native/transport/zip/block_receiver.h"

#include <errno.h>

#include <algorithm>
#include <cstring>

#include "rgpu_common/native/base/probe.h"

namespace rgpu::transport::zip {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
// When some bytes have been taken already, the link is read for more only if at least this many are
// still wanted.
constexpr size_t kDirectBytes = 4096;
// After a block of this size or more, little is read ahead: another large block usually follows,
// and bytes that are read ahead are copied once more.
constexpr size_t kLargeBytes = 64U << 10;

bool Copy(uint8_t* to, const uint8_t* from, size_t bytes, bool guarded) {
  if (guarded && !base::CanWrite(to, bytes)) return false;
  std::memcpy(to, from, bytes);
  return true;
}

}  // namespace

void BlockReceiver::Start(wire::ByteView ahead) {
  raw_ = std::make_unique_for_overwrite<uint8_t[]>(kReadAheadBytes);
  raw_end_ = std::min<size_t>(ahead.size, kReadAheadBytes);
  if (raw_end_ > 0) std::memcpy(raw_.get(), ahead.data, raw_end_);
  ready_ = raw_end_ > 0;
}

IoResult BlockReceiver::Receive(void* to, size_t bytes, How how) {
  if (malformed_) return {IoState::kFailed, 0, EBADMSG};
  const IoResult result = Take(static_cast<uint8_t*>(to), bytes, how);
  const bool ready = malformed_ || plain_bytes() > 0 || raw_bytes() >= kBlockHeaderBytes ||
                     (left_ > 0 && raw_bytes() > 0);
  if (ready != ready_.load(kRelaxed)) ready_ = ready;
  return result;
}

IoResult BlockReceiver::Take(uint8_t* to, size_t bytes, How how) {
  size_t got = 0;
  IoResult result{IoState::kWouldBlock, 0, 0};
  const bool guarded = how == How::kGuarded;
  while (got < bytes) {
    uint8_t* const at = to + got;
    const bool unpacked = plain_bytes() > 0;
    if (!unpacked && left_ == 0) {
      result.state = NextBlock(bytes, got == 0, how);
      if (result.state != IoState::kDone) break;
    } else if (!unpacked && header_.packed()) {
      result.state = FillPacked(got == 0, how);
      if (result.state != IoState::kDone) break;
    } else if (unpacked || raw_bytes() > 0) {
      const uint8_t* const from = unpacked ? plain_.get() + plain_begin_ : raw_.get() + raw_begin_;
      const size_t here =
          std::min(bytes - got, unpacked ? plain_bytes() : std::min(left_, raw_bytes()));
      if (!Copy(at, from, here, guarded)) {
        result.state = IoState::kFault;
        break;
      }
      (unpacked ? plain_begin_ : raw_begin_) += here;
      if (!unpacked) left_ -= here;
      got += here;
    } else {
      result.state = IoState::kWouldBlock;
      if (got > 0 && (bytes - got < kDirectBytes || how == How::kBlock)) break;
      result = transport::Receive(*link_, at, std::min(left_, bytes - got), how);
      if (result.ok()) {
        left_ -= result.bytes;
        got += result.bytes;
      }
      break;
    }
  }
  if (got > 0) return {IoState::kDone, got, 0};
  if (malformed_) result.error = EBADMSG;
  return result;
}

// Reads the header of the next block. kDone: `header_` holds it.
IoState BlockReceiver::NextBlock(size_t hint, bool may_read, How how) {
  while (raw_bytes() < kBlockHeaderBytes) {
    if (!may_read) return IoState::kWouldBlock;
    const size_t ahead = kBlockHeaderBytes - raw_bytes() + std::min(hint, kDirectBytes);
    const IoState state = Refill(large_ ? ahead : kReadAheadBytes, how);
    if (state != IoState::kDone) return state;
  }
  std::memcpy(&header_, raw_.get() + raw_begin_, sizeof header_);
  raw_begin_ += sizeof header_;
  if (!header_.IsValid()) return Malformed();
  left_ = header_.wire;
  large_ = left_ >= kLargeBytes;
  return IoState::kDone;
}

IoState BlockReceiver::Refill(size_t limit, How how) {
  if (raw_begin_ > 0) {
    std::memmove(raw_.get(), raw_.get() + raw_begin_, raw_bytes());
    raw_end_ -= raw_begin_;
    raw_begin_ = 0;
  }
  const size_t bytes = std::min(limit, kReadAheadBytes - raw_end_);
  const IoResult result = transport::Receive(*link_, raw_.get() + raw_end_, bytes,
                                             how == How::kBlock ? how : How::kTry);
  if (result.ok()) raw_end_ += result.bytes;
  return result.state;
}

// Receives more of a packed block, and unpacks it when it is whole. kDone: some progress was made.
IoState BlockReceiver::FillPacked(bool may_read, How how) {
  if (packed_ == nullptr) packed_ = std::make_unique_for_overwrite<uint8_t[]>(kMaxPackedBytes);
  uint8_t* const at = packed_.get() + header_.wire - left_;
  if (const size_t here = std::min(left_, raw_bytes()); here > 0) {
    std::memcpy(at, raw_.get() + raw_begin_, here);
    raw_begin_ += here;
    left_ -= here;
  } else {
    if (!may_read) return IoState::kWouldBlock;
    const IoResult result =
        transport::Receive(*link_, at, left_, how == How::kBlock ? how : How::kTry);
    if (!result.ok()) return result.state;
    left_ -= result.bytes;
  }
  return left_ > 0 ? IoState::kDone : Unpack();
}

IoState BlockReceiver::Unpack() {
  if (plain_ == nullptr) plain_ = std::make_unique_for_overwrite<uint8_t[]>(kMaxPackedBytes);
  const size_t bytes = header_.plain_bytes();
  if (!unpacker_.Unpack(plain_.get(), bytes, packed_.get(), header_.wire)) return Malformed();
  plain_begin_ = 0;
  plain_end_ = bytes;
  savings_->received_plain.fetch_add(bytes, kRelaxed);
  savings_->received_packed.fetch_add(kBlockHeaderBytes + header_.wire, kRelaxed);
  return IoState::kDone;
}

IoState BlockReceiver::Malformed() {
  malformed_ = true;
  left_ = 0;
  return IoState::kFailed;
}

}  // namespace rgpu::transport::zip
