#include "rgpu_common/native/transport/zip/block_receiver.h"

#include <errno.h>

#include <algorithm>
#include <cstring>

namespace rgpu::transport::zip {
namespace {

// After a block of this size or more, little is read ahead: another large block usually follows,
// and bytes that are read ahead are copied once more.
constexpr size_t kLargeBytes = 64U << 10;

}  // namespace

void BlockReceiver::Start(wire::ByteView ahead) {
  raw_.Start(ahead);
  ready_ = raw_.bytes() > 0;
}

IoResult BlockReceiver::Receive(void* to, size_t bytes, How how) {
  if (malformed_) return {IoState::kFailed, 0, EBADMSG};
  const IoResult result = Take(static_cast<uint8_t*>(to), bytes, how);
  const bool ready = malformed_ || plain_bytes() > 0 || raw_.bytes() >= kBlockHeaderBytes ||
                     (left_ > 0 && raw_.bytes() > 0);
  if (ready != ready_.load(kRelaxed)) ready_ = ready;
  return result;
}

IoResult BlockReceiver::Take(uint8_t* to, size_t bytes, How how) {
  size_t got = 0;
  IoResult result{IoState::kWouldBlock, 0, 0};
  while (got < bytes) {
    uint8_t* const at = to + got;
    const bool unpacked = plain_bytes() > 0;
    if (!unpacked && left_ == 0) {
      result.state = NextBlock(bytes, got == 0, how);
      if (result.state != IoState::kDone) break;
    } else if (!unpacked && header_.packed()) {
      result.state = FillPacked(got == 0, how);
      if (result.state != IoState::kDone) break;
    } else if (unpacked || raw_.bytes() > 0) {
      const uint8_t* const from = unpacked ? plain_.get() + plain_begin_ : raw_.data();
      const size_t here =
          std::min(bytes - got, unpacked ? plain_bytes() : std::min(left_, raw_.bytes()));
      if (!CopyOut(at, from, here, how)) {
        result.state = IoState::kFault;
        break;
      }
      if (unpacked) {
        plain_begin_ += here;
      } else {
        raw_.Drop(here);
        left_ -= here;
      }
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
  while (raw_.bytes() < kBlockHeaderBytes) {
    if (!may_read) return IoState::kWouldBlock;
    const size_t ahead = kBlockHeaderBytes - raw_.bytes() + std::min(hint, kDirectBytes);
    const IoState state = raw_.Refill(*link_, large_ ? ahead : ReadAhead::kCapacity, how);
    if (state != IoState::kDone) return state;
  }
  header_ = raw_.Pop<BlockHeader>();
  if (!header_.IsValid()) return Malformed();
  left_ = header_.wire;
  large_ = left_ >= kLargeBytes;
  return IoState::kDone;
}

// Receives more of a packed block, and unpacks it when it is whole. kDone: some progress was made.
IoState BlockReceiver::FillPacked(bool may_read, How how) {
  if (packed_ == nullptr) packed_ = std::make_unique_for_overwrite<uint8_t[]>(kMaxPackedBytes);
  uint8_t* const at = packed_.get() + header_.wire - left_;
  if (const size_t here = std::min(left_, raw_.bytes()); here > 0) {
    std::memcpy(at, raw_.data(), here);
    raw_.Drop(here);
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
