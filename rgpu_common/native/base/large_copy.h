// Copies of more than the caches hold.
#pragma once

#include <cstddef>

namespace rgpu::base {

// memcpy, of memory that does not overlap.  What is much is written past the caches: a write that
// goes through them reads what it is about to overwrite first, which makes a copy half as quick
// again.  glibc does so by itself, but only for copies of about the size of the last cache, which
// is hundreds of megabytes on a server.
void LargeCopy(void* to, const void* from, size_t bytes);

}  // namespace rgpu::base
