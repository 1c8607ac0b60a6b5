// Adding nodes to a graph that the program names.
#pragma once

#include "rgpu_common/native/graph/model.h"

namespace rgpu::graph {

// Where a new node goes, as the calls say it. `data` is null for plain edges.
struct Place {
  CUgraph graph = nullptr;
  const CUgraphNode* dependencies = nullptr;
  const CUgraphEdgeData* data = nullptr;
  size_t count = 0;
};

// The dependencies of a node of type `to` of `graph`, checked: they are nodes of the graph, and
// none comes twice. The lock is held.
CUresult FindDependencies(const Model& model, const Graph& graph, const Place& place,
                          CUgraphNodeType to, std::vector<Edge>* before);

CUresult AddNode(Model& model, const Place& place, Params params, CUgraphNode* node);
// `params` gets the handles of the bodies.
CUresult AddConditional(Model& model, const Place& place, CUDA_CONDITIONAL_NODE_PARAMS* params,
                        CUgraphNode* node);
CUresult AddChild(Model& model, const Place& place, CUgraph child,
                  CUgraphChildGraphNodeOwnership ownership, CUgraphNode* node);

}  // namespace rgpu::graph
