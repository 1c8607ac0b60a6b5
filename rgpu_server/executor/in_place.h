// Copies without staging memory, for device memory that the host can read and write. The emulated
// device's memory is such memory (unless it runs in hostile-timing mode); a discrete GPU's is not.
#pragma once

#include "rgpu_server/executor/command.h"
#include "rgpu_server/executor/rows.h"
#include "rgpu_server/executor/streams.h"

namespace rgpu::exec {

struct Driver;
class Executor;

// Returns true if the driver reports the memory's host pointer to be equal to its device address.
bool HostReaches(const Driver& driver, uint64_t address);

// Returns where the bulk of a copy to the device may be received directly. That is allowed if the
// copy has nothing in its context to wait for and no other lease wants the device. Null: receive
// into staging memory. The executor's lock is held. If it is not null, Exports::EndArrival follows.
uint8_t* PlaceOfArrival(Executor& executor, const Command& command);

// Called when the bytes have arrived there: charges `stream` for a copy. The executor's lock is
// held.
void CountArrival(Executor& executor, const Command& command, Stream& stream);

}  // namespace rgpu::exec
