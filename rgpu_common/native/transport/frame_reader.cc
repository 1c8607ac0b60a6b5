#include <algorithm>
#include <cstring>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/base/memory.h"
#include "rgpu_common/native/base/probe.h"
#include "rgpu_common/native/transport/frame_io.h"

namespace rgpu::transport {
namespace {

// A rest of bulk shorter than this is read into the buffer, together with the bytes after it.
constexpr size_t kUnbufferedBytes = 4096;
// The most bytes read ahead: enough for a batch of commands, but little bulk, because bulk that is
// read ahead is copied once more.
constexpr size_t kReadAheadBytes = 32U << 10;
// After bulk of this size or more, only a head is read ahead, because more large bulk usually
// follows.
constexpr uint32_t kLargeBulkBytes = 64U << 10;
constexpr size_t kLeastCapacity = size_t{2} * (wire::kHeaderBytes + wire::kMaxHeadBytes);

}  // namespace

FrameReader::FrameReader(Connection* connection, size_t buffer_bytes)
    : connection_(connection),
      capacity_(std::max(buffer_bytes, kLeastCapacity)),
      buffer_(std::make_unique_for_overwrite<uint8_t[]>(capacity_)),
      head_(std::make_unique_for_overwrite<uint8_t[]>(wire::kMaxHeadBytes)),
      refill_limit_(kReadAheadBytes) {}

IoState FrameReader::Refill(size_t limit, int timeout_ms) {
  if (begin_ == end_) {
    begin_ = end_ = 0;
  } else if (capacity_ - end_ < capacity_ / 4) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, buffered());
    end_ = buffered();
    begin_ = 0;
  }
  uint8_t* to = buffer_.get() + end_;
  const size_t bytes = std::min(capacity_ - end_, limit);
  const IoResult result =
      timeout_ms == 0 ? connection_->TryRecv(to, bytes) : connection_->Recv(to, bytes, timeout_ms);
  if (result.ok()) end_ += result.bytes;
  return result.state;
}

ReadState FrameReader::Parse(wire::FrameHeader* header, wire::ByteView* head) {
  const size_t skip = std::min<size_t>(bulk_left_, buffered());
  begin_ += skip;
  bulk_left_ -= static_cast<uint32_t>(skip);
  if (bulk_left_ > 0 || buffered() < wire::kHeaderBytes) return ReadState::kTimeout;
  if (!wire::ParseHeader(buffer_.get() + begin_, header)) return ReadState::kMalformed;
  const uint32_t head_bytes = header->head_bytes();
  if (buffered() < wire::kHeaderBytes + head_bytes) return ReadState::kTimeout;
  std::memcpy(head_.get(), buffer_.get() + begin_ + wire::kHeaderBytes, head_bytes);
  begin_ += wire::kHeaderBytes + head_bytes;
  *head = {head_.get(), head_bytes};
  bulk_left_ = header->bulk_bytes;
  refill_limit_ = bulk_left_ >= kLargeBulkBytes ? wire::kHeaderBytes + head_bytes : kReadAheadBytes;
  return ReadState::kFrame;
}

ReadState FrameReader::Next(wire::FrameHeader* header, wire::ByteView* head, int timeout_ms,
                            bool wakeable) {
  if (final_ != ReadState::kFrame) return final_;
  const base::Deadline deadline(timeout_ms > 0 ? timeout_ms : -1);
  for (;;) {
    const ReadState parsed = Parse(header, head);
    if (parsed == ReadState::kMalformed) final_ = parsed;
    if (parsed != ReadState::kTimeout) return parsed;
    // A wakeable call must wait for Wake() as well as for bytes, so it uses Wait below.
    const int left = timeout_ms < 0 ? -1 : timeout_ms == 0 ? 0 : deadline.left_ms();
    const IoState received = Refill(refill_limit_, wakeable ? 0 : left);
    if (received == IoState::kDone) continue;
    if (received != IoState::kWouldBlock) return final_ = ReadState::kClosed;
    if (timeout_ms == 0 || (!wakeable && timeout_ms > 0)) return ReadState::kTimeout;
    if (!wakeable) continue;
    const int ready = connection_->Wait(kReadable | kWoken, left);
    if (ready == 0) return ReadState::kTimeout;
    if ((ready & kWoken) != 0) return ReadState::kWoken;
  }
}

// Copies buffered bytes to `to`. With `good`, the memory is known to be writable.
bool FrameReader::TakeBuffered(void* to, size_t bytes, bool good) {
  const uint8_t* from = buffer_.get() + begin_;
  begin_ += bytes;
  bulk_left_ -= static_cast<uint32_t>(bytes);
  if (guarded_ && !good) return base::GuardedCopy(to, from, bytes);
  std::memcpy(to, from, bytes);
  return true;
}

// Waits for and receives at least one byte of bulk. A short read goes into the buffer, and then
// `*got` is 0; others go into `to`.
BulkState FrameReader::ReceiveSome(uint8_t* to, size_t bytes, int idle_timeout_ms, size_t* got) {
  *got = 0;
  for (;;) {
    const bool direct = bytes >= kUnbufferedBytes;
    IoResult result;
    if (direct) {
      result = guarded_ ? connection_->TryRecvGuarded(to, bytes) : connection_->TryRecv(to, bytes);
    } else {
      result.state = Refill(refill_limit_);
    }
    switch (result.state) {
      case IoState::kDone:
        if (direct) {
          *got = result.bytes;
          bulk_left_ -= static_cast<uint32_t>(result.bytes);
        }
        return BulkState::kDone;
      case IoState::kFault:
        return BulkState::kFault;
      case IoState::kWouldBlock:
        if (connection_->Wait(kReadable, idle_timeout_ms) == 0) return BulkState::kTimeout;
        break;
      default:
        final_ = ReadState::kClosed;
        return BulkState::kClosed;
    }
  }
}

BulkState FrameReader::ReadBulk(void* to, size_t bytes, int idle_timeout_ms) {
  bytes = std::min<size_t>(bytes, bulk_left_);
  auto* at = static_cast<uint8_t*>(to);
  const bool look = guarded_ && !connection_->checks_memory();
  if (look && !base::CanWrite(to, bytes)) return Drain(bytes, idle_timeout_ms, BulkState::kFault);
  while (bytes > 0) {
    const size_t here = std::min(bytes, buffered());
    if (here > 0) {
      const bool written = TakeBuffered(at, here, look);
      at += here;
      bytes -= here;
      if (!written) return Drain(bytes, idle_timeout_ms, BulkState::kFault);
      continue;
    }
    size_t got = 0;
    const BulkState state = ReceiveSome(at, bytes, idle_timeout_ms, &got);
    if (state == BulkState::kFault) return Drain(bytes, idle_timeout_ms, BulkState::kFault);
    if (state != BulkState::kDone) return state;
    at += got;
    bytes -= got;
  }
  return BulkState::kDone;
}

BulkState FrameReader::Drain(size_t bytes, int idle_timeout_ms, BulkState answer) {
  while (bytes > 0) {
    if (buffered() == 0) {
      size_t got = 0;
      // Receive into the whole buffer; there is no destination.
      refill_limit_ = capacity_;
      const BulkState state = ReceiveSome(nullptr, 0, idle_timeout_ms, &got);
      if (state != BulkState::kDone) return state;
    }
    const size_t here = std::min(bytes, buffered());
    begin_ += here;
    bulk_left_ -= static_cast<uint32_t>(here);
    bytes -= here;
  }
  return answer;
}

BulkState FrameReader::SkipBulk(int idle_timeout_ms) {
  return Drain(bulk_left_, idle_timeout_ms, BulkState::kDone);
}

}  // namespace rgpu::transport
