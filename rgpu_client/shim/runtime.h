// The process: whether CUDA is initialised here, and its one session.
#pragma once

#include <atomic>
#include <cstdint>

#include "rgpu_client/shim/session.h"

namespace rgpu::shim {

enum class Phase : uint32_t {
  kNew,      // before cuInit, and in a forked child
  kReady,    // after cuInit
  kExiting,  // the process ends: CUDA_ERROR_DEINITIALIZED
};

Phase CurrentPhase();
// The session, or null.  In every body behind kNeedsInit it is there.
Session* CurrentSession();

// Opens the session once; later calls give the first one's answer if it was success.
// CUDA_ERROR_NO_DEVICE without RGPU_SERVER.  Says on stderr why it fails, each reason once.
CUresult OpenSession();
// Whether a session was opened here.  Libraries above remember a failure for good.
enum class OpenState : int { kNotTried = 0, kOpen = 1, kFailed = 2 };
OpenState CurrentOpenState();
// RGPU_SERVER is set.
bool ServerConfigured();
// cuInit.
CUresult Initialize();

// True in the first call after a fork without exec: everything of the parent has been given up.
// One load when it is false.
void CheckForFork();

}  // namespace rgpu::shim
