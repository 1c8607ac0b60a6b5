#include "rgpu_server/executor/staging.h"

namespace rgpu::exec {

CUresult Staging::Take(uint32_t bytes, Piece* piece) {
  if (bytes > kSmallBytes) {
    std::shared_ptr<uint8_t> slot;
    const CUresult result = TakeSlot(&slot);
    if (result == CUDA_SUCCESS) *piece = {slot.get(), bytes, slot};
    return result;
  }
  const uint32_t rounded = (bytes + 255U) & ~255U;
  if (shared_ == nullptr || shared_used_ + rounded > kSlotBytes) {
    std::shared_ptr<uint8_t> slot;
    if (const CUresult result = TakeSlot(&slot); result != CUDA_SUCCESS) return result;
    shared_ = std::move(slot);
    shared_used_ = 0;
  }
  *piece = {shared_.get() + shared_used_, bytes, shared_};
  shared_used_ += rounded;
  return CUDA_SUCCESS;
}

CUresult Staging::TakeSlot(std::shared_ptr<uint8_t>* slot) {
  uint8_t* base = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      base = free_.back();
      free_.pop_back();
    } else if (total_bytes_ + kSlotBytes > kMaxStagingBytes) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    } else {
      total_bytes_ += kSlotBytes;
    }
  }
  if (base == nullptr) {
    void* memory = nullptr;
    const CUresult result = driver_->cuMemHostAlloc(&memory, kSlotBytes, CU_MEMHOSTALLOC_PORTABLE);
    if (result != CUDA_SUCCESS) {
      std::lock_guard lock(mutex_);
      total_bytes_ -= kSlotBytes;
      return result;
    }
    base = static_cast<uint8_t*>(memory);
  }
  *slot = {base, [self = shared_from_this()](uint8_t* returned) { self->Return(returned); }};
  return CUDA_SUCCESS;
}

void Staging::Return(uint8_t* slot) {
  {
    std::lock_guard lock(mutex_);
    if (abandoned_) return;  // went with its context
    if (free_.size() < kKept) {
      free_.push_back(slot);
      return;
    }
    total_bytes_ -= kSlotBytes;
  }
  driver_->cuMemFreeHost(slot);
}

void Staging::Abandon() {
  shared_.reset();
  std::lock_guard lock(mutex_);
  abandoned_ = true;
  for (uint8_t* slot : free_) driver_->cuMemFreeHost(slot);
  free_.clear();
}

}  // namespace rgpu::exec
