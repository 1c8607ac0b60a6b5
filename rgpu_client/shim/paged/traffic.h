// Reads and writes the device's memory now, in no order with the work of the program's streams. A
// write is complete for all later commands of its context.
#pragma once

#include <cstdint>

#include "gen/cuda_abi.gen.h"

namespace rgpu::shim {

class Session;
struct Context;

namespace traffic {

CUresult Fetch(Session& session, Context& context, uint64_t address, uint64_t bytes, uint8_t* to);
CUresult Push(Session& session, Context& context, uint64_t address, const uint8_t* from,
              uint64_t bytes);
// Waits until all that was pushed is in the device's memory.
CUresult Settle(Session& session, Context& context);

}  // namespace traffic

}  // namespace rgpu::shim
