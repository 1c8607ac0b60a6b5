// The worker's graphs for which its driver makes the handles of conditional nodes.
#pragma once

#include <cstdint>
#include <memory>

#include "rgpu_client/shim/calls/here.h"
#include "rgpu_common/native/graph/graph.h"

namespace rgpu::shim {

// Asks the worker for a value, for the graph `root`. Its `keep` destroys the worker's graph when
// the program has destroyed its own, and all copies of it, without an executable.
CUresult MakeConditional(const Here& here, uint64_t root, graph::ConditionalHandle* handle);
// An executable has taken the worker's graph for `root`, so the worker may forget it.
void ConditionalsTaken(const Here& here, uint64_t root);
// In a forked child: forgets the graphs of its parent.
void ForgetConditionals();

}  // namespace rgpu::shim
