#include "rgpu_emu/device/services.h"

#include <sys/mman.h>

#include <cstdio>

namespace rgpu::emu {
namespace {

uint64_t WholePages(uint64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

}  // namespace

Windows::Windows(const Arena& arena) { free_[arena.windows_base()] = arena.windows_bytes(); }

// A range is a guard page and a window. The guard page of the next range follows it; at the end of
// the band there is one more.
uint64_t Windows::ReserveWindow(uint64_t bytes) {
  if (bytes == 0 || bytes > uint64_t{1} << 46) return 0;
  const uint64_t want = WholePages(bytes) + kPageBytes;
  uint64_t at = 0;
  {
    const std::lock_guard lock(mutex_);
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->second < want) continue;
      at = it->first;
      const uint64_t left = it->second - want;
      free_.erase(it);
      if (left != 0) free_[at + want] = left;
      break;
    }
  }
  if (at == 0) return 0;
  if (mprotect(reinterpret_cast<void*>(at + kPageBytes), want - kPageBytes,
               PROT_READ | PROT_WRITE) != 0) {
    ReleaseWindow(at + kPageBytes, bytes);
    return 0;
  }
  return at + kPageBytes;
}

void Windows::ReleaseWindow(uint64_t address, uint64_t bytes) {
  if (address == 0) return;
  const uint64_t pages = WholePages(bytes);
  void* window = reinterpret_cast<void*>(address);
  madvise(window, pages, MADV_DONTNEED);
  mprotect(window, pages, PROT_NONE);
  uint64_t at = address - kPageBytes;
  uint64_t size = pages + kPageBytes;
  const std::lock_guard lock(mutex_);
  auto next = free_.lower_bound(at);
  if (next != free_.end() && at + size == next->first) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == at) {
      before->second += size;
      return;
    }
  }
  free_[at] = size;
}

uint64_t Services::DeviceMalloc(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const uint64_t pages = WholePages(bytes);
  if (bytes == 0 || bytes > heap_limit_.load() || heap_used_ + pages > heap_limit_.load()) return 0;
  AllocationRef allocation = arena_->Allocate(bytes, MemoryKind::kDevice, 0);
  if (allocation == nullptr) return 0;
  // Host calls must not see the heap of kernels.
  arena_->Hide(allocation);
  heap_used_ += pages;
  const uint64_t base = allocation->base;
  heap_[base] = std::move(allocation);
  return base;
}

void Services::DeviceFree(uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto it = heap_.find(address);
  if (it == heap_.end()) return;
  arena_->Release(it->second);
  heap_used_ -= it->second->map_bytes;
  heap_.erase(it);
}

bool Services::SetHeapBytes(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes < heap_used_) return false;
  heap_limit_.store(bytes);
  return true;
}

uint64_t Services::UsedBesideHeap() {
  const std::lock_guard lock(mutex_);
  return arena_->used() - heap_used_;
}

void Services::Print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void Services::PrintAsserts(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace rgpu::emu
