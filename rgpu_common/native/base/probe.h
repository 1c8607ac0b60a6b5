// Tests whether memory is accessible at addresses that this code did not choose.
#pragma once

#include <cstddef>

namespace rgpu::base {

// True if this process can read (or write) all `bytes` from `address` on now. The test finds wrong
// pointers; it does not help against a thread that unmaps the memory later. It costs up to 70 ns
// for each page, or a few microseconds for any size on Linux 6.11 and later.
bool CanRead(const void* address, size_t bytes);
bool CanWrite(void* address, size_t bytes);

}  // namespace rgpu::base
