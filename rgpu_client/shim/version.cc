#include "rgpu_client/shim/runtime.h"
#include "rgpu_common/native/base/release.h"

// A worker refuses to load a device library that exports this symbol: with the shim as its driver,
// the worker would call itself.
extern "C" __attribute__((visibility("default"))) const char* rgpu_shim_version();

const char* rgpu_shim_version() { return rgpu::base::Release(); }

// For rgpu_client.connect(): 0: no session was tried, 1: a session is open, 2: opening one failed.
extern "C" __attribute__((visibility("default"))) int rgpu_shim_state();

int rgpu_shim_state() { return static_cast<int>(rgpu::shim::CurrentOpenState()); }
