// Host memory that copies of any device may use. Every session of the process may read or write it.
#pragma once

#include "rgpu_client/shim/calls/here.h"
#include "rgpu_client/shim/host_region.h"

namespace rgpu::shim {

// Waits until no session has bytes of an asynchronous copy to land in [address, address + bytes),
// or to read from it. Returns the error of the session of `here`: the loss of another device is no
// error of this one.
CUresult WaitForHostBytes(const Here& here, uint64_t address, uint64_t bytes);
// True if bytes of an asynchronous copy have still to land in the region, or to be read from it.
bool ExpectsIn(const HostRegion& region);
// True if a stream may still wait for something that the program does, so that host bytes are read
// in stream order. A stream of one device may wait for one of another.
bool HostBytesAreOrdered();

}  // namespace rgpu::shim
