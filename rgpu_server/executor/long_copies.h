// Posted copies of more bytes than may lie in staging memory at once. A host function holds the
// stream at the copy's place while a thread moves the pieces on a stream of its own, through a few
// slots in turn. So the number of issued driver calls is bounded too, and the driver never blocks
// in one while the executor's lock is held.
#pragma once

#include "rgpu_server/executor/command.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/rows.h"

namespace rgpu::exec {

// Whether a copy of so many bytes is too long for the staging memory left now.
bool IsLong(Staging& staging, uint64_t bytes);

// The thread appends the bytes of `rows` to the chunks of `delivery`.
CUresult StartLongOut(Executor& executor, const Target& target, const Rows& rows,
                      const std::shared_ptr<Delivery>& delivery);

// The thread asks the client for the bytes, in parts.
CUresult StartLongIn(Executor& executor, const Command& command, const Target& target,
                     const Rows& rows);

}  // namespace rgpu::exec
