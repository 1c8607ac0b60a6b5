// What the device says about itself.
#pragma once

#include "gen/cuda_abi.gen.h"

namespace rgpu::emu {

inline constexpr char kDeviceName[] = "rgpu emulated device";
inline constexpr char kPciBusId[] = "0000:E0:00.0";

// False: no such attribute.
bool DeviceAttribute(CUdevice_attribute attribute, int* value);

}  // namespace rgpu::emu
