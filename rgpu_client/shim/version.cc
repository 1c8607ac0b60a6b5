#include "rgpu_client/shim/version.h"

// A worker refuses a device library that has this symbol: it would serve itself.
extern "C" __attribute__((visibility("default"))) const char* rgpu_shim_version();

const char* rgpu_shim_version() { return rgpu::shim::kRelease; }
