// Copies to memory that somebody else named.
#pragma once

#include <cstddef>

namespace rgpu::base {

// memcpy that the kernel carries out: false if `to` cannot be written, or `from` not be read. Costs
// about a microsecond.
bool GuardedCopy(void* to, const void* from, size_t bytes);

}  // namespace rgpu::base
