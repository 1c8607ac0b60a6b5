// Memory that host and device both use: managed memory, mapped page-locked memory, and the images
// of registered memory.
#pragma once

#include "rgpu_client/shim/calls/here.h"

namespace rgpu::shim {

// Asks the worker for device memory, and for credit if the program allocates often (memory.cc).
CUresult AllocateByCall(const Here& here, uint64_t bytes, uint64_t* address);

// Allocates memory that the program uses in place, at the device's own addresses, and notes it as
// `kind`. CUDA_ERROR_NOT_SUPPORTED: the server or the address space does not allow it.
CUresult AllocateVisible(const Here& here, uint64_t bytes, RangeKind kind, unsigned flags,
                         uint64_t* address);
// Frees it; its range is out of the address map already.
CUresult FreeVisible(const Here& here, const Range& range);
// Takes the pages of such a range, or the image that it is, away from the program.
void ForgetVisible(Session& session, const Range& range);

// Sets `*image` to the device's image of registered or pinned memory, which is made on first use.
// The memory may be of another session: each device has an image of its own.
CUresult ImageOf(const Here& here, const Range& host, Range* image);
// The host's memory is about to be freed or unregistered.
void FreeImages(const Range& host);

}  // namespace rgpu::shim
