// Large linear copies in memory that is shared with the device.
#pragma once

#include <optional>

#include "rgpu_client/shim/calls/copies.h"

namespace rgpu::shim {

// Carries out a flattened copy between host and device by itself, in its place in here.stream.
// Nothing: it is not for this way (too small, several rows, nothing shared, host memory that is not
// there), and nothing has happened.
std::optional<CUresult> CopyDirectly(const Here& here, const Copy& copy);

}  // namespace rgpu::shim
