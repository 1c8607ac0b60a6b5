// What block runners ask of the device: windows for shared and local memory, the heap of kernels,
// printf.
#pragma once

#include <atomic>
#include <map>
#include <mutex>

#include "rgpu_emu/device/arena.h"
#include "rgpu_emu/device/exec/grid.h"

namespace rgpu::emu {

// Windows are private memory at the end of the band, which is never shared with another process.
class Windows : public WindowProvider {
 public:
  explicit Windows(const Arena& arena);
  uint64_t ReserveWindow(uint64_t bytes) override;
  void ReleaseWindow(uint64_t address, uint64_t bytes) override;

 private:
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> free_;  // base -> bytes
};

class Services : public DeviceServices {
 public:
  explicit Services(Arena* arena) : arena_(arena) {}
  uint64_t DeviceMalloc(uint64_t bytes) override;
  void DeviceFree(uint64_t address) override;
  void Print(std::string_view text) override;
  void PrintAsserts(std::string_view text) override;
  // Sets the heap limit of the process, which all contexts share. Returns false if kernels use
  // more.
  bool SetHeapBytes(uint64_t bytes);
  uint64_t heap_bytes() const { return heap_limit_.load(); }
  // The used bytes of the arena, without the heap of kernels, whose limit is accounted for
  // separately.
  uint64_t UsedBesideHeap();

 private:
  Arena* const arena_;
  std::atomic<uint64_t> heap_limit_{uint64_t{8} << 20};
  std::mutex mutex_;
  std::map<uint64_t, AllocationRef> heap_;
  uint64_t heap_used_ = 0;
};

}  // namespace rgpu::emu
