// Addresses of page-locked memory where the device needs its own: among the parameters of a launch,
// and where a call names device memory.
#pragma once

#include "rgpu_client/shim/calls/here.h"
#include "rgpu_client/shim/launch.h"

namespace rgpu::shim {

// With unified addressing, kernels may use memory of cuMemHostAlloc by its host address. Here the
// device has an image of it at another address, which replaces the host address in the parameters.
// `buffer`: holds the parameters if they were changed. An error: an image cannot be made.
CUresult UseImages(const Here& here, std::vector<uint8_t>* buffer, PackedParams* packed);

// The same for one address. An address of other memory stays as it is.
CUresult UseImage(const Here& here, uint64_t* address);

}  // namespace rgpu::shim
