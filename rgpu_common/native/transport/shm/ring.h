// One direction of a shared-memory connection: a ring of bytes with one writer and one reader, in
// two processes that do not trust each other.
//
// Every word of RingControl may be changed by the peer at any time, to anything.  So each end keeps
// its own position in its own memory, reads the peer's once and checks that it makes sense against
// its own; bytes are copied out before anybody looks at them.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace rgpu::transport {

// In shared memory.  Positions count bytes since the beginning and never wrap.
struct RingControl {
  alignas(64) std::atomic<uint64_t> tail;  // the writer's: bytes written
  alignas(64) std::atomic<uint64_t> head;  // the reader's: bytes read
  // Not 0: that end sleeps, or is about to, and wants the doorbell.
  alignas(64) std::atomic<uint32_t> reader_sleeps;
  alignas(64) std::atomic<uint32_t> writer_sleeps;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(RingControl) == 256);

// What is published at once: the reader copies one piece out while the writer copies the next in.
inline constexpr size_t kRingPiece = 64U << 10;

enum class RingState : uint8_t {
  kDone,    // at least one byte was moved
  kNone,    // full, or empty
  kBroken,  // the peer's position makes no sense: the session is over
};

struct RingResult {
  RingState state = RingState::kNone;
  size_t bytes = 0;
};

// Wakes the other end.  Called by the threads that write and read.
class Doorbell {
 public:
  virtual void Ring() = 0;

 protected:
  ~Doorbell() = default;
};

// One thread writes; HasRoom may be called by any.
class RingWriter {
 public:
  // `bytes` is a power of two.
  RingWriter(RingControl* control, uint8_t* data, size_t bytes, Doorbell* bell)
      : control_(control), data_(data), bytes_(bytes), bell_(bell) {}

  RingResult Write(const iovec* parts, int count);
  // Room for at least `bytes`; also true if the ring is broken.
  bool HasRoom(size_t bytes) const;
  size_t size() const { return bytes_; }
  // This end is about to sleep until there is room: look once more after it.
  void SaySleeping() { control_->writer_sleeps.store(1, std::memory_order_seq_cst); }
  void SayAwake() { control_->writer_sleeps.store(0, std::memory_order_relaxed); }

 private:
  void CopyIn(uint64_t at, const uint8_t* from, size_t bytes);
  void Publish(uint64_t tail);

  RingControl* const control_;
  uint8_t* const data_;
  const size_t bytes_;
  Doorbell* const bell_;
  std::atomic<uint64_t> tail_{0};  // the truth; atomic for HasRoom
};

// One thread reads; HasBytes may be called by any.
class RingReader {
 public:
  RingReader(RingControl* control, const uint8_t* data, size_t bytes, Doorbell* bell)
      : control_(control), data_(data), bytes_(bytes), bell_(bell) {}

  RingResult Read(void* to, size_t bytes);
  // At least one byte is there; also true if the ring is broken.
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

// A writer that found the ring full goes on when so much of it is free: less would wake it for
// every piece that the reader takes.
inline size_t RoomToGoOn(size_t ring_bytes) { return ring_bytes / 4; }

}  // namespace rgpu::transport
