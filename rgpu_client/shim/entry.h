// The guard that every exported function holds around its body. Generated exports look like this:
//
//   CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
//     rgpu::shim::EntryGuard entry(kIndex, rgpu::shim::kMayWait | rgpu::shim::kNeedsInit);
//     if (!entry.ok()) return entry.status();
//     if (dptr == nullptr || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
//     return entry.Leave(rgpu::shim::cuMemAlloc_v2(dptr, bytesize));
//   }
//
// The checks of arguments come from the row of the call (cudaspec/calls), so a body does not repeat
// them. kIndex is the function's CallId: its place in kCallNames, from which the trace takes its
// names.
#pragma once

#include <cstdint>

#include "gen/cuda_abi.gen.h"
#include "rgpu_client/shim/paged/active.h"
#include "rgpu_client/shim/refusals.h"
#include "rgpu_common/native/base/entry.h"

namespace rgpu::shim {

using enum base::EntryFlags;

class EntryGuard : public base::EntryStatus {
 public:
  EntryGuard(uint32_t index, uint32_t flags);
  ~EntryGuard();

  CUresult Leave(CUresult result) {
    if (PagedHas(kUnsettledPages | kMirrors)) [[unlikely]]
      SettleMemory(result);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) [[unlikely]]
      NoteFailure(result);
    return result;
  }
  // Leaves a function that needs a current context because an argument is bad. The driver looks for
  // the context first.
  CUresult LeaveInContext(CUresult error);

 private:
  void NoteFailure(CUresult result) const;
  void SettleMemory(CUresult result) const;
  void ShowMemory() const;

  const uint32_t index_;
  const uint32_t flags_;
  uint64_t start_ns_ = 0;
};

// True if `ordinal` names a device of the session's lease. Generated exports check it.
bool IsDevice(CUdevice ordinal);

// Called by functions that have no body: counts the call for the trace, notes it for `refusals.h`,
// and returns `answer`.
CUresult Unsupported(uint32_t index, CUresult answer);

}  // namespace rgpu::shim
