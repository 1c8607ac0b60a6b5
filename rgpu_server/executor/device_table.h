// What the client's local table of the device says: the device's own values, except where they
// would promise what does not hold through the wire.
#pragma once

#include "rgpu_common/native/wire/welcome.h"
#include "rgpu_server/executor/driver.h"

namespace rgpu::exec {

// `limit_bytes`: the lease's memory, which is all that the program sees.
CUresult ReadDevice(const Driver& driver, CUdevice device, uint64_t limit_bytes,
                    wire::DeviceInfo* info);

}  // namespace rgpu::exec
