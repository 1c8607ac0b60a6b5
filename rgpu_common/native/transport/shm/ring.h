// One direction of a shared-memory connection: a ring of bytes with one writer and one reader, in
// two processes that do not trust each other.
//
// The peer may change every word of RingControl at any time, to any value. So each end keeps its
// own position in private memory. It reads the peer's position once, and checks it against its own.
// Bytes are copied out of the ring before they are examined.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace rgpu::transport {

// The control words, in shared memory. Positions count bytes since the beginning and never wrap.
struct RingControl {
  alignas(64) std::atomic<uint64_t> tail;  // bytes written, stored by the writer
  alignas(64) std::atomic<uint64_t> head;  // bytes read, stored by the reader
  // Not 0: the reader (the writer) sleeps, or is about to sleep, and must be woken by the doorbell.
  alignas(64) std::atomic<uint32_t> reader_sleeps;
  alignas(64) std::atomic<uint32_t> writer_sleeps;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(RingControl) == 256);

// The size of the pieces that are published. The reader copies one piece out while the writer
// copies the next one in.
inline constexpr size_t kRingPiece = 64U << 10;

enum class RingState : uint8_t {
  kDone,    // at least one byte was moved
  kNone,    // no byte was moved: the ring is full (for a write) or empty (for a read)
  kBroken,  // the peer's position is impossible: the session must end
};

struct RingResult {
  RingState state = RingState::kNone;
  size_t bytes = 0;
};

// Wakes the other end. The threads that write and read call it.
class Doorbell {
 public:
  virtual void Ring() = 0;

 protected:
  ~Doorbell() = default;
};

// The writing end. Only one thread may write; any thread may call HasRoom.
class RingWriter {
 public:
  // `bytes` is a power of two.
  RingWriter(RingControl* control, uint8_t* data, size_t bytes, Doorbell* bell)
      : control_(control), data_(data), bytes_(bytes), bell_(bell) {}

  RingResult Write(const iovec* parts, int count);
  // True if there is room for at least `bytes`, and also if the ring is broken.
  bool HasRoom(size_t bytes) const;
  size_t size() const { return bytes_; }
  // Called before this end sleeps until there is room. The caller must check HasRoom once more
  // after it.
  void SaySleeping() { control_->writer_sleeps.store(1, std::memory_order_seq_cst); }
  void SayAwake() { control_->writer_sleeps.store(0, std::memory_order_relaxed); }

 private:
  void CopyIn(uint64_t at, const uint8_t* from, size_t bytes);
  void Publish(uint64_t tail);

  RingControl* const control_;
  uint8_t* const data_;
  const size_t bytes_;
  Doorbell* const bell_;
  std::atomic<uint64_t> tail_{0};  // the trusted position; atomic for HasRoom
};

// The reading end. Only one thread may read; any thread may call HasBytes.
class RingReader {
 public:
  RingReader(RingControl* control, const uint8_t* data, size_t bytes, Doorbell* bell)
      : control_(control), data_(data), bytes_(bytes), bell_(bell) {}

  RingResult Read(void* to, size_t bytes);
  // True if at least one byte can be read, and also if the ring is broken.
  bool HasBytes() const;
  void SaySleeping() { control_->reader_sleeps.store(1, std::memory_order_seq_cst); }
  void SayAwake() { control_->reader_sleeps.store(0, std::memory_order_relaxed); }

 private:
  void CopyOut(uint8_t* to, uint64_t at, size_t bytes) const;
  void Publish(uint64_t head, uint64_t tail);

  RingControl* const control_;
  const uint8_t* const data_;
  const size_t bytes_;
  Doorbell* const bell_;
  std::atomic<uint64_t> head_{0};
};

// A writer that found the ring full continues when this much of it is free. With less, every piece
// that the reader takes would wake the writer.
inline size_t RoomToGoOn(size_t ring_bytes) { return ring_bytes / 4; }

}  // namespace rgpu::transport
