// Fills the table of device attributes that the client answers from without asking: the device's
// own values, except those that would promise what does not work over the wire.
#pragma once

#include "gen/handshake.gen.h"
#include "rgpu_server/executor/driver.h"

namespace rgpu::exec {

// `limit_bytes`: the lease's memory, which the program sees as the device's total memory.
CUresult ReadDevice(const Driver& driver, CUdevice device, uint64_t limit_bytes,
                    wire::DeviceInfo* info);

}  // namespace rgpu::exec
