// The attributes that the device reports.
#pragma once

#include "gen/cuda_abi.gen.h"

namespace rgpu::emu {

inline constexpr char kDeviceName[] = "rgpu emulated device";
inline constexpr char kPciBusId[] = "0000:E0:00.0";

// Returns false if there is no such attribute.
bool DeviceAttribute(CUdevice_attribute attribute, int* value);

}  // namespace rgpu::emu
