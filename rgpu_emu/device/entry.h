// What every exported function of the emulated device does before its body.  Generated exports
// look like this (the same form as the shim's):
//
//   CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
//     rgpu::emu::EntryGuard entry(kIndex, rgpu::emu::kMayWait | rgpu::emu::kNeedsInit);
//     if (!entry.ok()) return entry.status();
//     return entry.Leave(rgpu::emu::cuMemAlloc_v2(dptr, bytesize));
//   }
#pragma once

#include <cstdint>

#include "gen/cuda_abi.gen.h"

namespace rgpu::emu {

enum EntryFlags : uint32_t {
  kMayWait = 1,
  // CUDA_ERROR_NOT_INITIALIZED before cuInit.
  kNeedsInit = 2,
  // A `_ptds` or `_ptsz` twin: stream 0 means the per-thread default stream in this call.
  kPerThreadStream = 4,
};

class EntryGuard {
 public:
  EntryGuard(uint32_t index, uint32_t flags);
  ~EntryGuard();
  EntryGuard(const EntryGuard&) = delete;
  EntryGuard& operator=(const EntryGuard&) = delete;

  bool ok() const { return status_ == CUDA_SUCCESS; }
  CUresult status() const { return status_; }
  CUresult Leave(CUresult result) { return result; }

 private:
  CUresult status_ = CUDA_SUCCESS;
  bool outer_per_thread_ = false;
  int cancel_state_ = 0;
};

// The answer of functions without a body.
inline CUresult Unsupported(uint32_t, CUresult answer) { return answer; }

// After fork a child has no threads of the parent: every call but the table look-ups answers
// NOT_INITIALIZED.
void WatchFork();
bool Forked();

// True inside a `_ptds`/`_ptsz` twin: stream 0 is the per-thread default stream.
bool PerThreadDefault();

// True on a thread that is running a host function: CUDA calls from it are not permitted.
void SetInHostFunction(bool in);

}  // namespace rgpu::emu
