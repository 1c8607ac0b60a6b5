// The hard limit on a worker's own memory: what holds when a charge has a defect.
#pragma once

#include <cstdint>

namespace rgpu::exec {

// Bytes of private memory that a worker may map: what its lease grants and what a worker needs
// besides (docs/explanation/quotas-memory.md).  Device memory of the emulated device is shared memory and does
// not count: the device bounds it by itself.  Addresses that are only reserved do not count either,
// so that the bands of addresses of a device stay possible.
uint64_t CeilingBytes(uint64_t lease_bytes, bool emulated);

// Sets it, for good.  Beyond it allocations fail.  False: the system refuses, or this is a build
// with sanitizers, which map more than any limit.
bool SetCeiling(uint64_t bytes);

}  // namespace rgpu::exec
