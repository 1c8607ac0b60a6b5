// Calls that ask about graphs and nodes.
#include <algorithm>
#include <cstdio>
#include <string>

#include "rgpu_common/native/graph/calls.h"
#include "rgpu_common/native/graph/dot.h"
#include "rgpu_common/native/graph/make_params.h"

namespace rgpu::graph {
namespace {

// Calls `show(params)` with the parameters of the node, if it is of type `Kind`.
template <class Kind, class Give>
CUresult Ask(Model& model, CUgraphNode node, const Give& show) {
  Locked locked(model);
  Node* found = model.FindNode(node);
  auto* params = found == nullptr ? nullptr : std::get_if<Kind>(&found->params);
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  show(*params);
  return CUDA_SUCCESS;
}

CUgraphNode HandleOf(const Node* node) { return As<CUgraphNode>(node->handle); }

// A list as the getters return it: without an array its length; with one as many as fit, and null
// in the places that are left.
CUresult GiveNodes(const std::vector<CUgraphNode>& all, CUgraphNode* nodes, size_t* count) {
  if (nodes != nullptr) {
    const size_t given = std::min(*count, all.size());
    std::copy_n(all.begin(), given, nodes);
    std::fill(nodes + given, nodes + *count, nullptr);
    *count = given;
  } else {
    *count = all.size();
  }
  return CUDA_SUCCESS;
}

// An edge as the getters see it: one or two nodes of interest.
struct Shown {
  CUgraphNode first = nullptr;
  CUgraphNode second = nullptr;
  CUgraphEdgeData data{};
};

// `first` and `second` are arrays or null, and so is `data`. An edge whose data would be lost fails
// the call.
CUresult GiveEdges(const std::vector<Shown>& all, CUgraphNode* first, CUgraphNode* second,
                   CUgraphEdgeData* data, size_t* count) {
  if (first == nullptr && second == nullptr && data == nullptr) {
    *count = all.size();
    return CUDA_SUCCESS;
  }
  const size_t given = std::min(*count, all.size());
  if (data == nullptr) {
    for (size_t i = 0; i < given; ++i) {
      if (!IsPlain(all[i].data)) return CUDA_ERROR_LOSSY_QUERY;
    }
  }
  for (size_t i = 0; i < *count; ++i) {
    const Shown shown = i < given ? all[i] : Shown();
    if (first != nullptr) first[i] = shown.first;
    if (second != nullptr) second[i] = shown.second;
    if (data != nullptr) data[i] = shown.data;
  }
  *count = given;
  return CUDA_SUCCESS;
}

CUresult GiveNeighbours(const std::vector<Edge>& edges, CUgraphNode* nodes, CUgraphEdgeData* data,
                        size_t* count) {
  if (nodes == nullptr && data != nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Shown> all;
  for (const Edge& edge : edges) all.push_back({HandleOf(edge.node), nullptr, edge.data});
  return GiveEdges(all, nodes, nullptr, data, count);
}

Node* FindIn(const Graph& graph, uint64_t original) {
  for (const auto& node : graph.nodes()) {
    if (node->original == original) return node.get();
    for (const auto& inside : InsideOf(*node)) {
      if (Node* found = FindIn(*inside, original); found != nullptr) return found;
    }
  }
  return nullptr;
}

}  // namespace

CUresult GraphKernelNodeGetParams(Model& model, CUgraphNode hNode,
                                  CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return Ask<KernelParams>(model, hNode, [&](KernelParams& kernel) { *nodeParams = Show(kernel); });
}

CUresult GraphMemcpyNodeGetParams(Model& model, CUgraphNode hNode, CUDA_MEMCPY3D* nodeParams) {
  return Ask<CopyParams>(model, hNode, [&](CopyParams& copy) { *nodeParams = copy.copy; });
}

CUresult GraphMemsetNodeGetParams(Model& model, CUgraphNode hNode,
                                  CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  return Ask<SetParams>(model, hNode, [&](SetParams& set) { *nodeParams = Show(set); });
}

CUresult GraphHostNodeGetParams(Model& model, CUgraphNode hNode,
                                CUDA_HOST_NODE_PARAMS* nodeParams) {
  return Ask<HostParams>(model, hNode,
                         [&](HostParams& host) { *nodeParams = {host.function, host.data}; });
}

CUresult GraphChildGraphNodeGetGraph(Model& model, CUgraphNode hNode, CUgraph* phGraph) {
  return Ask<ChildParams>(model, hNode,
                          [&](ChildParams& child) { *phGraph = As<CUgraph>(child.graph->handle); });
}

CUresult GraphEventRecordNodeGetEvent(Model& model, CUgraphNode hNode, CUevent* event_out) {
  return Ask<RecordParams>(model, hNode, [&](RecordParams& record) { *event_out = record.event; });
}

CUresult GraphEventWaitNodeGetEvent(Model& model, CUgraphNode hNode, CUevent* event_out) {
  return Ask<WaitParams>(model, hNode, [&](WaitParams& wait) { *event_out = wait.event; });
}

CUresult GraphBatchMemOpNodeGetParams(Model& model, CUgraphNode hNode,
                                      CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams_out) {
  return Ask<BatchParams>(model, hNode, [&](BatchParams& batch) { *nodeParams_out = Show(batch); });
}

CUresult GraphMemAllocNodeGetParams(Model& model, CUgraphNode hNode,
                                    CUDA_MEM_ALLOC_NODE_PARAMS* params_out) {
  return Ask<AllocParams>(model, hNode, [&](AllocParams& alloc) { *params_out = Show(alloc); });
}

CUresult GraphMemFreeNodeGetParams(Model& model, CUgraphNode hNode, CUdeviceptr* dptr_out) {
  return Ask<FreeParams>(model, hNode, [&](FreeParams& free) { *dptr_out = free.address; });
}

CUresult GraphKernelNodeGetAttribute(Model& model, CUgraphNode hNode, CUkernelNodeAttrID attr,
                                     CUkernelNodeAttrValue* value_out) {
  if (!IsNodeAttribute(attr)) return CUDA_ERROR_INVALID_VALUE;
  return Ask<KernelParams>(model, hNode, [&](KernelParams& kernel) {
    const auto* value = FindAttribute(kernel.attributes, attr);
    *value_out = value == nullptr ? CUkernelNodeAttrValue{} : *value;
  });
}

CUresult GraphNodeFindInClone(Model& model, CUgraphNode* phNode, CUgraphNode hOriginalNode,
                              CUgraph hClonedGraph) {
  Locked locked(model);
  const Graph* clone = model.FindGraph(hClonedGraph);
  const Node* original = model.FindNode(hOriginalNode);
  if (clone == nullptr || original == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Node* found = FindIn(*clone, original->handle);
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *phNode = HandleOf(found);
  return CUDA_SUCCESS;
}

CUresult GraphNodeGetType(Model& model, CUgraphNode hNode, CUgraphNodeType* type) {
  Locked locked(model);
  const Node* node = model.FindNode(hNode);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = node->type();
  return CUDA_SUCCESS;
}

CUresult GraphGetNodes(Model& model, CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes) {
  Locked locked(model);
  const Graph* graph = model.FindGraph(hGraph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> all;
  for (const auto& node : graph->nodes()) all.push_back(HandleOf(node.get()));
  return GiveNodes(all, nodes, numNodes);
}

CUresult GraphGetRootNodes(Model& model, CUgraph hGraph, CUgraphNode* rootNodes,
                           size_t* numRootNodes) {
  Locked locked(model);
  const Graph* graph = model.FindGraph(hGraph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> roots;
  for (const auto& node : graph->nodes()) {
    if (node->before.empty()) roots.push_back(HandleOf(node.get()));
  }
  return GiveNodes(roots, rootNodes, numRootNodes);
}

CUresult GraphGetEdges(Model& model, CUgraph hGraph, CUgraphNode* from, CUgraphNode* to,
                       CUgraphEdgeData* edgeData, size_t* numEdges) {
  // Both arrays or neither; the data only with them.
  const bool none = from == nullptr && to == nullptr && edgeData == nullptr;
  if (!none && (from == nullptr || to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  Locked locked(model);
  const Graph* graph = model.FindGraph(hGraph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Shown> all;
  for (const auto& node : graph->nodes()) {
    for (const Edge& edge : node->after)
      all.push_back({HandleOf(node.get()), HandleOf(edge.node), edge.data});
  }
  return GiveEdges(all, from, to, edgeData, numEdges);
}

CUresult GraphNodeGetDependencies(Model& model, CUgraphNode hNode, CUgraphNode* dependencies,
                                  CUgraphEdgeData* edgeData, size_t* numDependencies) {
  Locked locked(model);
  const Node* node = model.FindNode(hNode);
  return node == nullptr ? CUDA_ERROR_INVALID_VALUE
                         : GiveNeighbours(node->before, dependencies, edgeData, numDependencies);
}

CUresult GraphNodeGetDependentNodes(Model& model, CUgraphNode hNode, CUgraphNode* dependentNodes,
                                    CUgraphEdgeData* edgeData, size_t* numDependentNodes) {
  Locked locked(model);
  const Node* node = model.FindNode(hNode);
  return node == nullptr ? CUDA_ERROR_INVALID_VALUE
                         : GiveNeighbours(node->after, dependentNodes, edgeData, numDependentNodes);
}

CUresult GraphDebugDotPrint(Model& model, CUgraph hGraph, const char* path, unsigned int flags) {
  std::string text;
  {
    Locked locked(model);
    const Graph* graph = model.FindGraph(hGraph);
    if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    text = DotText(*graph, flags);
  }
  FILE* file = std::fopen(path, "we");
  if (file == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  return std::fclose(file) == 0 && written ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

}  // namespace rgpu::graph
