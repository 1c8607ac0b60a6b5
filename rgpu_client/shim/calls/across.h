// Copies that name memory of another session than the stream's. The bytes travel through this
// process.
#pragma once

#include "rgpu_client/shim/calls/copies.h"

namespace rgpu::shim {

// True if a device side of the copy is of another session than here.stream.
bool IsAcross(const Here& here, const Copy& copy);
// Checks both sides and makes such a copy. A synchronous one comes behind all work of the contexts
// concerned, and is complete on return. Any other one is ordered in here.stream.
CUresult RunAcross(const Here& here, const Copy& copy);

}  // namespace rgpu::shim
