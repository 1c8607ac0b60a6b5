// Pinned host memory that bytes pass through between the connection and the device.  One per
// context.
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

inline constexpr uint32_t kSmallBytes = 64U << 10;  // up to here pieces share a slot
// Of all contexts of the session: host memory that no lease is charged for.  A client that wants
// more gets 2.
inline constexpr uint64_t kMaxStagingBytes = 256U << 20;

// A part of a slot.  `keep` returns the slot when nobody holds any part of it.
struct Piece {
  uint8_t* data = nullptr;
  uint32_t size = 0;
  std::shared_ptr<const void> keep;
};

// Slots come in two sizes: that of the pieces copies are cut into, and the largest bulk of a frame.
// The one that came back last goes out first, because it is still in the cache.
class Staging : public std::enable_shared_from_this<Staging> {
 public:
  explicit Staging(const Driver& driver) : driver_(driver) {}

  // The context is current; bytes <= wire::kMaxBulkBytes.  CUDA_ERROR_OUT_OF_MEMORY above the
  // limit.
  CUresult Take(uint32_t bytes, Piece* piece);
  // What pieces can still be taken of.
  uint64_t Left();
  // Gives back what is not in use; the context is current and about to be destroyed.
  void Abandon();

 private:
  struct Slots {
    const uint32_t bytes;
    std::vector<uint8_t*> free;
  };
  // Free slots of one size beyond this are given back to the system.
  static constexpr uint64_t kKeptBytes = 16U << 20;

  CUresult TakeSlot(uint32_t bytes, std::shared_ptr<uint8_t>* slot);
  void Return(Slots& slots, uint8_t* slot);

  const Driver& driver_;
  std::mutex mutex_;
  bool abandoned_ = false;
  // A worker process serves one session.
  static inline std::atomic<uint64_t> total_bytes_{0};
  std::array<Slots, 2> sizes_{{{wire::kPieceBytes, {}}, {wire::kMaxBulkBytes, {}}}};
  std::shared_ptr<uint8_t> shared_;  // small pieces are cut from it
  uint32_t shared_used_ = 0;
};

}  // namespace rgpu::exec
