// Copies without staging: device memory that the host can read and write, as it can that of the
// emulated device (not in hostile timing) and of no discrete one.
#pragma once

#include "rgpu_server/executor/command.h"
#include "rgpu_server/executor/rows.h"
#include "rgpu_server/executor/streams.h"

namespace rgpu::exec {

struct Driver;
class Executor;

// The driver says so itself: the host pointer of the memory is its address.
bool HostReaches(const Driver& driver, uint64_t address);

// Where the bulk of a copy to the device may be received at once, since nothing in its context is
// on its way that it would have to wait for, and nobody else wants the device.  Null: in staging
// memory.  The executor's lock is held.
uint8_t* PlaceOfArrival(Executor& executor, const Command& command);

// The bytes have arrived there: `stream` has done a copy.  The executor's lock is held.
void CountArrival(Executor& executor, const Command& command, Stream& stream);

}  // namespace rgpu::exec
