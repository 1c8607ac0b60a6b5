// Functions that the handlers of plain and pooled memory share.
#pragma once

#include <cstdint>
#include <memory>

#include "rgpu_server/executor/command.h"
#include "rgpu_server/executor/objects.h"

namespace rgpu::exec {

class Executor;

// Frees the plain allocation at `base`, which the caller has taken out of the table of ranges, for
// `command`. The driver frees the memory when the work issued so far in `context` (where the free
// was called) and in the allocation's own context is complete.
void FreePlain(Executor& executor, const Command& command, const std::shared_ptr<Context>& context,
               uint64_t base, const Range& range);
// Counts one allocation of `pool` as freed. When the last allocation of a destroyed pool is freed,
// the pool itself is destroyed.
void LeavePool(Executor& executor, const std::shared_ptr<Pool>& pool);

}  // namespace rgpu::exec
