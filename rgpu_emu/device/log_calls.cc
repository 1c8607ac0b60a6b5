// Calls cuLogs*: the device has a log of its own, with every failed call.
#include "gen/emu_calls.gen.h"
#include "rgpu_common/native/base/error_log.h"

namespace rgpu::emu {
#include "rgpu_common/native/base/error_log_calls.inc"
}  // namespace rgpu::emu
