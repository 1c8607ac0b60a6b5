// Pinned host memory through which bytes pass between the connection and the device. Each context
// has its own.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "rgpu_common/native/wire/frame.h"
#include "rgpu_server/executor/driver.h"

namespace rgpu::exec {

inline constexpr uint32_t kSmallBytes = 64U << 10;  // pieces up to this size share a slot
// The limit for all contexts of the session, because no lease is charged for this host memory.
// Beyond it a copy fails with CUDA_ERROR_OUT_OF_MEMORY.
inline constexpr uint64_t kMaxStagingBytes = 256U << 20;

// A part of a slot. The slot is returned when the last `keep` of its parts is released.
struct Piece {
  uint8_t* data = nullptr;
  uint32_t size = 0;
  std::shared_ptr<const void> keep;
};

// Slots have two sizes: the piece size that copies are divided into, and the largest bulk of a
// frame. The slot returned last is used first, because it is still in the cache.
class Staging : public std::enable_shared_from_this<Staging> {
 public:
  explicit Staging(const Driver& driver) : driver_(driver) {}

  // The context must be current, and bytes <= wire::kMaxBulkBytes. CUDA_ERROR_OUT_OF_MEMORY: above
  // the limit.
  CUresult Take(uint32_t bytes, Piece* piece);
  // Returns how many bytes of pieces can still be taken.
  uint64_t Left();
  // Frees the slots that are not in use; the context is current and about to be destroyed.
  void Abandon();

 private:
  struct Slots {
    const uint32_t bytes;
    std::vector<uint8_t*> free;
  };
  // Free slots of one size beyond this are freed. NVIDIA's driver keeps all: its cuMemFreeHost
  // waits for everything that its context has to do, with the executor's lock.
  static constexpr uint64_t kKeptBytes = 16U << 20;

  CUresult TakeSlot(uint32_t bytes, std::shared_ptr<uint8_t>* slot);
  void Return(Slots& slots, uint8_t* slot);

  const Driver& driver_;
  std::mutex mutex_;
  bool abandoned_ = false;
  // A worker process serves one session.
  static inline std::atomic<uint64_t> total_bytes_{0};
  std::array<Slots, 2> sizes_{{{wire::kPieceBytes, {}}, {wire::kMaxBulkBytes, {}}}};
  std::shared_ptr<uint8_t> shared_;  // small pieces are cut from this slot
  uint32_t shared_used_ = 0;
};

}  // namespace rgpu::exec
