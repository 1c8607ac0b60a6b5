// Copies between addresses that this code did not choose and that may be bad.
#pragma once

#include <cstddef>

namespace rgpu::base {

// Like memcpy, but made by the kernel. False: `to` cannot be written, or `from` cannot be read.
// Costs about a microsecond.
bool GuardedCopy(void* to, const void* from, size_t bytes);

}  // namespace rgpu::base
