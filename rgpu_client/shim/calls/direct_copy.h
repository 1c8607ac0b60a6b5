// Large linear copies through device memory that is mapped into this process.
#pragma once

#include <optional>

#include "rgpu_client/shim/calls/copies.h"

namespace rgpu::shim {

// Makes a flattened copy between host and device with memcpy, in its place in here.stream. Nullopt:
// nothing was copied, because the copy is too small or has several rows, device memory is not
// mapped, or the host memory is not accessible.
std::optional<CUresult> CopyDirectly(const Here& here, const Copy& copy);

}  // namespace rgpu::shim
