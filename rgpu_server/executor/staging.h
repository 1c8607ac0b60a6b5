// Pinned host memory that bytes pass through between the connection and the device.  One per
// context.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "rgpu_server/executor/driver.h"

namespace rgpu::exec {

inline constexpr uint32_t kSlotBytes = 1U << 20;    // the largest bulk of a frame
inline constexpr uint32_t kSmallBytes = 64U << 10;  // up to here pieces share a slot
// Per context: host memory that no lease is charged for.  A client that wants more gets 2.
inline constexpr uint64_t kMaxStagingBytes = 256U << 20;

// A part of a slot.  `keep` returns the slot when nobody holds any part of it.
struct Piece {
  uint8_t* data = nullptr;
  uint32_t size = 0;
  std::shared_ptr<const void> keep;
};

class Staging : public std::enable_shared_from_this<Staging> {
 public:
  explicit Staging(const Driver& driver) : driver_(driver) {}

  // The context is current; bytes <= kSlotBytes.  CUDA_ERROR_OUT_OF_MEMORY above the limit.
  CUresult Take(uint32_t bytes, Piece* piece);
  // Gives back what is not in use; the context is current and about to be destroyed.
  void Abandon();

 private:
  static constexpr size_t kKept = 16;  // free slots that are not given back to the system

  CUresult TakeSlot(std::shared_ptr<uint8_t>* slot);
  void Return(uint8_t* slot);

  const Driver& driver_;
  std::mutex mutex_;
  bool abandoned_ = false;
  uint64_t total_bytes_ = 0;
  std::vector<uint8_t*> free_;
  std::shared_ptr<uint8_t> shared_;  // small pieces are cut from it
  uint32_t shared_used_ = 0;
};

}  // namespace rgpu::exec
