// What every exported function of the emulated device does before its body. A generated export has
// the same form as the shim's, and the same checks of arguments:
//
//   CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
//     rgpu::emu::EntryGuard entry(kIndex, rgpu::emu::kMayWait | rgpu::emu::kNeedsInit);
//     if (!entry.ok()) return entry.status();
//     if (dptr == nullptr || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
//     return entry.Leave(rgpu::emu::cuMemAlloc_v2(dptr, bytesize));
//   }
#pragma once

#include <cstdint>

#include "gen/cuda_abi.gen.h"
#include "rgpu_common/native/base/entry.h"

namespace rgpu::emu {

using enum base::EntryFlags;

class EntryGuard : public base::EntryStatus {
 public:
  EntryGuard(uint32_t index, uint32_t flags);
  ~EntryGuard();

  CUresult Leave(CUresult result) {
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) [[unlikely]]
      NoteFailure(result);
    return result;
  }
  // Leaves a function that needs a current context because an argument is bad. NVIDIA's driver
  // looks for the context first.
  CUresult LeaveInContext(CUresult error);

 private:
  void NoteFailure(CUresult result) const;

  const uint32_t index_;
  bool outer_per_thread_ = false;
};

// A function that gets a number of a device returns INVALID_DEVICE before its body if there is no
// such device.
inline bool IsDevice(CUdevice device) { return device == 0; }

// The result of functions that the device does not implement.
CUresult Unsupported(uint32_t index, CUresult answer);

// A forked child has none of the parent's threads, so every call except table look-ups returns
// NOT_INITIALIZED there.
void WatchFork();
bool Forked();

// True inside a `_ptds`/`_ptsz` twin: stream 0 is the per-thread default stream.
bool PerThreadDefault();

// Marks the calling thread as running a host function, in which CUDA calls are not permitted.
void SetInHostFunction(bool in);

}  // namespace rgpu::emu
