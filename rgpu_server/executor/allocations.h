// What the handlers that free memory share.
#pragma once

#include <cstdint>
#include <memory>

#include "rgpu_server/executor/objects.h"

namespace rgpu::exec {

class Executor;

// The plain allocation at `base`, which is in no table any more, goes when the work before it is
// complete, in `context`, where it is freed, and in its own.
void FreePlain(Executor& executor, const std::shared_ptr<Context>& context, uint64_t base,
               const Range& range);
// An allocation of the pool has been freed.  The last one takes a destroyed pool with it.
void LeavePool(Executor& executor, const std::shared_ptr<Pool>& pool);

}  // namespace rgpu::exec
