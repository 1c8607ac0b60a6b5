// The launch runtime of the emulated device: connection to the compiler, code loading, running
// grids.
#pragma once

#include "rgpu_emu/device/exec/compiler_client.h"
#include "rgpu_emu/device/exec/fault_guard.h"
#include "rgpu_emu/device/exec/grid.h"
#include "rgpu_emu/device/exec/kernel.h"
#include "rgpu_emu/device/exec/module.h"
