#include "rgpu_client/shim/version.h"

#include "rgpu_client/shim/runtime.h"

// A worker refuses a device library that has this symbol: it would serve itself.
extern "C" __attribute__((visibility("default"))) const char* rgpu_shim_version();

const char* rgpu_shim_version() { return rgpu::shim::kRelease; }

// For rgpu_client.connect(): 0 no session was asked for, 1 it is open, 2 there was none to be had.
extern "C" __attribute__((visibility("default"))) int rgpu_shim_state();

int rgpu_shim_state() { return static_cast<int>(rgpu::shim::CurrentOpenState()); }
