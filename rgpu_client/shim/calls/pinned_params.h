// Addresses of page-locked memory among the parameters of a launch or of a kernel node.
#pragma once

#include "rgpu_client/shim/calls/here.h"
#include "rgpu_client/shim/launch.h"

namespace rgpu::shim {

// With unified addressing, kernels may use memory of cuMemHostAlloc by its host address. Here the
// device has an image of it at another address, which replaces the host address in the parameters.
// `buffer`: holds the parameters if they were changed. An error: an image cannot be made.
CUresult UseImages(const Here& here, std::vector<uint8_t>* buffer, PackedParams* packed);

}  // namespace rgpu::shim
