// Operations on values in device memory, which streams and graphs make.
#pragma once

#include "rgpu_client/shim/calls/here.h"

namespace rgpu::shim {

// Checks one operation of a batch in here.context: its kind, flags and address.
CUresult CheckOperation(const Here& here, const CUstreamBatchMemOpParams& params);

}  // namespace rgpu::shim
