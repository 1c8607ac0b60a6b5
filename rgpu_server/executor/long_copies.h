// Posted copies of more bytes than should lie in staging memory at once.  Their stream stands still
// at their place, in a host function, while a thread moves the pieces on a stream of its own,
// through a few slots in turn.  So what is issued ahead is bounded, too: the driver never blocks in
// a command with the executor's lock.
#pragma once

#include "rgpu_server/executor/command.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/rows.h"

namespace rgpu::exec {

// Whether so many bytes are too many for now.
bool IsLong(Staging& staging, uint64_t bytes);

// Bytes of `rows` go into chunks of the delivery.
CUresult StartLongOut(Executor& executor, const Target& target, const Rows& rows,
                      const std::shared_ptr<Delivery>& delivery);

// The client is asked for the bytes, in parts.
CUresult StartLongIn(Executor& executor, const Command& command, const Target& target,
                     const Rows& rows);

}  // namespace rgpu::exec
