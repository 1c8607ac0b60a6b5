#include "rgpu_common/native/transport/shm/ring.h"

#include <algorithm>
#include <cstring>

namespace rgpu::transport {
namespace {

// One end stores its position and then reads the other end's sleep flag. The other end sets its
// sleep flag and then reads the position. All four accesses are sequentially consistent, so at
// least one end sees what the other has stored, and no wake-up is lost.
constexpr std::memory_order kInOneOrder = std::memory_order_seq_cst;

bool Take(std::atomic<uint32_t>& sleeps) {
  return sleeps.load(kInOneOrder) != 0 && sleeps.exchange(0, kInOneOrder) != 0;
}

}  // namespace

void RingWriter::CopyIn(uint64_t at, const uint8_t* from, size_t bytes) {
  const size_t offset = at & (bytes_ - 1);
  const size_t first = std::min(bytes, bytes_ - offset);
  std::memcpy(data_ + offset, from, first);
  std::memcpy(data_, from + first, bytes - first);
}

void RingWriter::Publish(uint64_t tail) {
  // Store this end's own copy first: a thread that waits for room compares the reader's position
  // with it.
  tail_.store(tail, std::memory_order_release);
  control_->tail.store(tail, kInOneOrder);
  if (Take(control_->reader_sleeps)) bell_->Ring();
}

RingResult RingWriter::Write(const iovec* parts, int count) {
  const uint64_t start = tail_.load(std::memory_order_relaxed);
  const uint64_t used = start - control_->head.load(std::memory_order_acquire);
  if (used > bytes_) return {RingState::kBroken, 0};
  const size_t room = bytes_ - used;
  uint64_t tail = start;
  uint64_t published = start;
  for (int i = 0; i < count && tail - start < room; ++i) {
    const auto* from = static_cast<const uint8_t*>(parts[i].iov_base);
    size_t left = std::min<size_t>(parts[i].iov_len, room - (tail - start));
    while (left > 0) {
      const size_t piece = std::min(left, kRingPiece - (tail - published));
      CopyIn(tail, from, piece);
      tail += piece;
      from += piece;
      left -= piece;
      if (tail - published == kRingPiece) Publish(published = tail);
    }
  }
  if (tail != published) Publish(tail);
  return {tail == start ? RingState::kNone : RingState::kDone, tail - start};
}

bool RingWriter::HasRoom(size_t bytes) const {
  // Load the reader's position first. In the other order, it could be newer than this end's own.
  const uint64_t head = control_->head.load(kInOneOrder);
  const uint64_t used = tail_.load(std::memory_order_acquire) - head;
  return used > bytes_ || bytes_ - used >= bytes;
}

void RingReader::CopyOut(uint8_t* to, uint64_t at, size_t bytes) const {
  const size_t offset = at & (bytes_ - 1);
  const size_t first = std::min(bytes, bytes_ - offset);
  std::memcpy(to, data_ + offset, first);
  std::memcpy(to + first, data_, bytes - first);
}

// `tail` is the writer's position as read before. A writer that sleeps has not moved it since.
void RingReader::Publish(uint64_t head, uint64_t tail) {
  head_.store(head, std::memory_order_release);
  control_->head.store(head, kInOneOrder);
  if (bytes_ - (tail - head) < RoomToGoOn(bytes_)) return;
  if (Take(control_->writer_sleeps)) bell_->Ring();
}

RingResult RingReader::Read(void* to, size_t bytes) {
  const uint64_t start = head_.load(std::memory_order_relaxed);
  const uint64_t there = control_->tail.load(std::memory_order_acquire) - start;
  if (there > bytes_) return {RingState::kBroken, 0};
  const size_t count = std::min<size_t>(bytes, there);
  auto* at = static_cast<uint8_t*>(to);
  for (size_t done = 0; done < count;) {
    const size_t piece = std::min(count - done, kRingPiece);
    CopyOut(at + done, start + done, piece);
    done += piece;
    Publish(start + done, start + there);
  }
  return {count == 0 ? RingState::kNone : RingState::kDone, count};
}

bool RingReader::HasBytes() const {
  const uint64_t tail = control_->tail.load(kInOneOrder);
  // A thread that reads meanwhile may be past `tail`; then there were bytes.
  return tail != head_.load(std::memory_order_acquire);
}

}  // namespace rgpu::transport
