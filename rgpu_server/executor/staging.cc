#include "rgpu_server/executor/staging.h"

#include <algorithm>

namespace rgpu::exec {

CUresult Staging::Take(uint32_t bytes, Piece* piece) {
  if (bytes > kSmallBytes) {
    std::shared_ptr<uint8_t> slot;
    const CUresult result = TakeSlot(bytes, &slot);
    if (result == CUDA_SUCCESS) *piece = {slot.get(), bytes, slot};
    return result;
  }
  const uint32_t rounded = (bytes + 255U) & ~255U;
  if (shared_ == nullptr || shared_used_ + rounded > wire::kPieceBytes) {
    std::shared_ptr<uint8_t> slot;
    if (const CUresult result = TakeSlot(bytes, &slot); result != CUDA_SUCCESS) return result;
    shared_ = std::move(slot);
    shared_used_ = 0;
  }
  *piece = {shared_.get() + shared_used_, bytes, shared_};
  shared_used_ += rounded;
  return CUDA_SUCCESS;
}

uint64_t Staging::Left() {
  std::lock_guard lock(mutex_);
  const uint64_t taken = std::min<uint64_t>(total_bytes_, kMaxStagingBytes);
  return kMaxStagingBytes - taken + sizes_[0].free.size() * sizes_[0].bytes;
}

CUresult Staging::TakeSlot(uint32_t bytes, std::shared_ptr<uint8_t>* slot) {
  Slots& slots = sizes_[bytes <= wire::kPieceBytes ? 0 : 1];
  uint8_t* base = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (!slots.free.empty()) {
      base = slots.free.back();
      slots.free.pop_back();
    }
  }
  if (base == nullptr) {
    const uint64_t total = total_bytes_ += slots.bytes;
    if (total > kMaxStagingBytes) {
      total_bytes_ -= slots.bytes;
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    void* memory = nullptr;
    const CUresult result = driver_->cuMemHostAlloc(&memory, slots.bytes, CU_MEMHOSTALLOC_PORTABLE);
    if (result != CUDA_SUCCESS) {
      total_bytes_ -= slots.bytes;
      return result;
    }
    base = static_cast<uint8_t*>(memory);
  }
  *slot = {base, [self = shared_from_this(), &slots](uint8_t* returned) {
             self->Return(slots, returned);
           }};
  return CUDA_SUCCESS;
}

void Staging::Return(Slots& slots, uint8_t* slot) {
  {
    std::lock_guard lock(mutex_);
    if (abandoned_) {  // the slot's memory is freed with its context
      total_bytes_ -= slots.bytes;
      return;
    }
    if (!driver_.emulated || slots.free.size() < kKeptBytes / slots.bytes) {
      slots.free.push_back(slot);
      return;
    }
  }
  driver_->cuMemFreeHost(slot);
  total_bytes_ -= slots.bytes;
}

void Staging::Abandon() {
  shared_.reset();
  std::lock_guard lock(mutex_);
  abandoned_ = true;
  for (Slots& slots : sizes_) {
    for (uint8_t* slot : slots.free) driver_->cuMemFreeHost(slot);
    total_bytes_ -= slots.free.size() * slots.bytes;
    slots.free.clear();
  }
}

}  // namespace rgpu::exec
