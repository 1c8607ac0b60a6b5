// The error log, which this process keeps. It has every failed call, and the sentences that rgpu
// prints.
#include "gen/shim_calls.gen.h"
#include "rgpu_common/native/base/error_log.h"

namespace rgpu::shim {
#include "rgpu_common/native/base/error_log_calls.inc"
}  // namespace rgpu::shim
