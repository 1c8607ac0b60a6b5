// Operations on contexts and streams that several files use.
#pragma once

#include "rgpu_client/shim/calls/here.h"

namespace rgpu::shim {

// Destroys the context on the server, and removes its objects and addresses from the tables.
CUresult DestroyContext(Session& session, Context& context);

// Waits for everything posted to the context. Sends nothing if all of it is known to be complete.
CUresult SynchronizeContext(const Here& here);

// Waits until here.stream is empty.
CUresult SynchronizeStream(const Here& here);

// Called when a kernel or a graph has been launched in here.stream. Returns at once, unless the
// program is run with CUDA_LAUNCH_BLOCKING=1: then when the work is done, with its error.
inline CUresult EndOfLaunch(const Here& here) {
  return here.session->launch_blocking() ? SynchronizeStream(here) : CUDA_SUCCESS;
}

// Called when command `seq` makes a stream of the context wait for a value that the program may
// write later.
void StartHostOrder(const Here& here, uint64_t seq);

}  // namespace rgpu::shim
