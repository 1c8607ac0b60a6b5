// The thread that runs host functions and callbacks of the program (cuLaunchHostFunc,
// cuStreamAddCallback), one after the other. The first one starts it.
#pragma once

#include <cstdint>

#include "rgpu_client/shim/channel.h"
#include "rgpu_client/shim/control_lane.h"

namespace rgpu::shim {

class HostFunctions {
 public:
  // Runs `call` later. `control` is then told that `callback` has returned, unless it is 0.
  static void Run(ControlLane* control, uint64_t callback, const HostCall& call, CUresult status);
  // At process exit: none begins any more. What the program has in them may be gone already, as
  // Python's interpreter.
  static void End();
  // True in a host function. CUDA calls are not allowed there.
  static bool InOne();
  // In a forked child, where the thread does not exist.
  static void Forget();
};

}  // namespace rgpu::shim
