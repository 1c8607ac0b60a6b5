// Builds a driver's graph from a definition.
#pragma once

#include <memory>

#include "rgpu_common/native/wire/graph_definition.h"
#include "rgpu_server/executor/graphs/exec.h"

namespace rgpu::exec {

class Executor;

// Where little is left of what a session's graphs may take, waits until those are gone that the
// client has destroyed and whose work is complete: it makes others in their place at once. May
// release the executor's lock.
void ReturnRoom(Executor& executor);

// `into`: an empty graph of the driver to build into, or null for a new one. The context is
// current. On failure `built->failed` names the node, if it was one, and the graph is destroyed
// (not `into`).
CUresult BuildGraph(Executor& executor, const std::shared_ptr<Context>& context,
                    const wire::GraphDefinition& definition, CUgraph into, BuiltGraph* built);

// Makes the driver load the code of all kernels, and provides the local memory that they need.
// Releases the executor's lock.
CUresult LoadKernels(Executor& executor, const std::shared_ptr<Context>& context,
                     const wire::GraphDefinition& definition);

// Changes the parameters of a node of an executable graph. CUDA_ERROR_NOT_SUPPORTED: the node keeps
// what it has, and needs a new definition.
CUresult SetNode(Executor& executor, GraphExec& exec, const wire::GraphNode& node);

}  // namespace rgpu::exec
