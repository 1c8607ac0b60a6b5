// The state of the process: whether CUDA is initialised, and the opening of its sessions.
#pragma once

#include <atomic>
#include <cstdint>

#include "rgpu_client/shim/sessions.h"

namespace rgpu::shim {

enum class Phase : uint32_t {
  kNew,      // before cuInit, and in a forked child
  kReady,    // after cuInit
  kExiting,  // the process is ending: every call returns CUDA_ERROR_DEINITIALIZED
};

Phase CurrentPhase();

// Opens the sessions, unless they are open already: all of them or none. CUDA_ERROR_NO_DEVICE
// without RGPU_SERVER. Prints the reason of a failure on stderr, unless it was the last one
// printed.
CUresult OpenSession();
// Whether a session was opened in this process. Libraries above the driver remember a failed cuInit
// for good, so rgpu_client.connect() asks for this state.
enum class OpenState : int { kNotTried = 0, kOpen = 1, kFailed = 2 };
OpenState CurrentOpenState();
// True if RGPU_SERVER is set.
bool ServerConfigured();
// The body of cuInit.
CUresult Initialize();

// In the first call after a fork without exec, gives up everything that belongs to the parent. In
// every other call it costs one load.
void CheckForFork();

}  // namespace rgpu::shim
