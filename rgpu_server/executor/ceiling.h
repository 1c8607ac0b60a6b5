// The hard limit on a worker's own memory (RLIMIT_DATA). It holds even if the accounting of leases
// has a defect.
#pragma once

#include <cstdint>

namespace rgpu::exec {

// Returns how many bytes of private memory a worker may map: the lease's memory plus what a worker
// needs itself (docs/explanation/quotas-memory.md). RLIMIT_DATA counts neither shared memory nor
// addresses that are only reserved. So it does not count the emulated device's memory, which that
// device limits itself, nor the address bands of a device.
uint64_t CeilingBytes(uint64_t lease_bytes, bool emulated);

// Sets the limit; it cannot be raised again. Allocations beyond it fail. Returns false if the
// system refuses the limit, or if this is a build with sanitizers, which map more than any limit.
bool SetCeiling(uint64_t bytes);

}  // namespace rgpu::exec
