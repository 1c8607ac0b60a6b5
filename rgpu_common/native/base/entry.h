// What the guards of exported functions of the driver API share. The shim and the emulated device
// have a guard each, which every generated export holds around its body.
#pragma once

#include <cstdint>

#include "gen/cuda_abi.gen.h"

namespace rgpu::base {

enum EntryFlags : uint32_t {
  // The body may take a lock or wait (all but pure table look-ups), so thread cancellation is
  // disabled in it.
  kMayWait = 1,
  // The function returns CUDA_ERROR_NOT_INITIALIZED before cuInit. Set for all but cuInit,
  // cuDriverGetVersion, cuGetProcAddress*, cuGetErrorName, cuGetErrorString, cuGetExportTable.
  kNeedsInit = 2,
  // A `_ptds` or `_ptsz` variant: in this call, stream 0 means the per-thread default stream.
  kPerThreadStream = 4,
};

class EntryStatus {
 public:
  EntryStatus() = default;
  EntryStatus(const EntryStatus&) = delete;
  EntryStatus& operator=(const EntryStatus&) = delete;

  // False: the export returns status() without running its body.
  bool ok() const { return status_ == CUDA_SUCCESS; }
  CUresult status() const { return status_; }

 protected:
  ~EntryStatus() = default;

  CUresult status_ = CUDA_SUCCESS;
  int cancel_state_ = 0;  // of the thread before the call
};

}  // namespace rgpu::base
