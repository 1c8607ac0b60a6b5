// Copies that are larger than the processor's caches.
#pragma once

#include <cstddef>

namespace rgpu::base {

// memcpy for memory that does not overlap. A large copy writes past the caches. A write through the
// caches first reads the line that it overwrites, so a copy past them is about half as fast again.
// glibc writes past the caches only for copies of about the size of the last cache, which is
// hundreds of megabytes on a server.
void LargeCopy(void* to, const void* from, size_t bytes);

}  // namespace rgpu::base
