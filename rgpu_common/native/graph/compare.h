// What may change in an executable.
#pragma once

#include "rgpu_common/native/graph/graph.h"

namespace rgpu::graph {

struct Difference {
  CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  const Node* node = nullptr;  // of the new graph
  const Node* from = nullptr;  // the other end of an edge that differs
};

// Decides cuGraphExecUpdate: whether an executable made of `old_graph` can become `new_graph`.
Difference Compare(const Graph& old_graph, const Graph& new_graph);

// Decides cuGraphExec*NodeSetParams: whether the parameters of one node of an executable may be
// replaced.
CUresult MayReplace(const Node& node, const Params& params);

// Whether the conditional nodes of two graphs that Compare found alike read the same values.
bool SameHandles(const Graph& old_graph, const Graph& new_graph);

// Exchanges the parameters of two graphs that Compare found alike, node by node. A second exchange
// undoes the first.
void SwapParams(Graph* graph, Graph* other);

}  // namespace rgpu::graph
