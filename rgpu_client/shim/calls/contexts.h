// What several files do with contexts.
#pragma once

#include "rgpu_client/shim/calls/here.h"

namespace rgpu::shim {

// Destroys it on the server and forgets all that lies in it.
CUresult DestroyContext(Session& session, Context& context);

// Waits for everything posted to the context; no message if there is nothing to wait for.
CUresult SynchronizeContext(const Here& here);

// Command `seq` makes a stream of the context wait for what the program may do later.
void StartHostOrder(const Here& here, uint64_t seq);

}  // namespace rgpu::shim
