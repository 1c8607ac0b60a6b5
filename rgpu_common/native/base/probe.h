// Memory at addresses that somebody else chose: whether it is there.
#pragma once

#include <cstddef>

namespace rgpu::base {

// Whether all of it can be read (or written) now, by this process.  It may go away afterwards, as
// it may under any copy; this is for wrong pointers, not for races.  Up to 70 ns a page, or a few
// microseconds for any size where the kernel tells about mappings (6.11).
bool CanRead(const void* address, size_t bytes);
bool CanWrite(void* address, size_t bytes);

}  // namespace rgpu::base
