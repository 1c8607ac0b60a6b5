// Calls that build graphs.
#include <algorithm>

#include "rgpu_common/native/graph/add_node.h"
#include "rgpu_common/native/graph/calls.h"
#include "rgpu_common/native/graph/make_params.h"

namespace rgpu::graph {
namespace {

// Adds a node whose parameters `made` says are good.
CUresult AddMade(Model& model, CUresult made, const Place& place, Params params,
                 CUgraphNode* node) {
  return made == CUDA_SUCCESS ? AddNode(model, place, std::move(params), node) : made;
}

// The edges that cuGraphAddDependencies and cuGraphRemoveDependencies name.
struct NamedEdge {
  Node* from;
  Node* to;
  CUgraphEdgeData data;
};

CUresult FindEdges(const Model& model, const Graph& graph, const CUgraphNode* from,
                   const CUgraphNode* to, const CUgraphEdgeData* data, size_t count,
                   std::vector<NamedEdge>* out) {
  for (size_t i = 0; i < count; ++i) {
    Node* first = model.FindNode(from[i]);
    Node* second = model.FindNode(to[i]);
    const bool ours = first != nullptr && second != nullptr && first != second &&
                      first->graph == &graph && second->graph == &graph;
    if (!ours) return CUDA_ERROR_INVALID_VALUE;
    out->push_back({first, second, data == nullptr ? CUgraphEdgeData{} : data[i]});
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult GraphCreate(Model& model, CUgraph* phGraph, unsigned int) {
  auto graph = std::make_shared<Graph>();
  Locked locked(model);
  model.Publish(graph.get());
  *phGraph = As<CUgraph>(graph->handle);
  model.graphs[graph->handle] = std::move(graph);
  return CUDA_SUCCESS;
}

CUresult GraphAddKernelNode(Model& model, CUgraphNode* phGraphNode, CUgraph hGraph,
                            const CUgraphNode* dependencies, size_t numDependencies,
                            const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  Params params;
  const CUresult made = MakeKernel(model.host, *nodeParams, {}, &params);
  return AddMade(model, made, {hGraph, dependencies, nullptr, numDependencies}, std::move(params),
                 phGraphNode);
}

CUresult GraphAddMemcpyNode(Model& model, CUgraphNode* phGraphNode, CUgraph hGraph,
                            const CUgraphNode* dependencies, size_t numDependencies,
                            const CUDA_MEMCPY3D* copyParams, CUcontext ctx) {
  Params params;
  const CUresult made = MakeCopy(model.host, *copyParams, ctx, &params);
  return AddMade(model, made, {hGraph, dependencies, nullptr, numDependencies}, std::move(params),
                 phGraphNode);
}

CUresult GraphAddMemsetNode(Model& model, CUgraphNode* phGraphNode, CUgraph hGraph,
                            const CUgraphNode* dependencies, size_t numDependencies,
                            const CUDA_MEMSET_NODE_PARAMS* memsetParams, CUcontext ctx) {
  Params params;
  const CUresult made = MakeSet(model.host, *memsetParams, ctx, &params);
  return AddMade(model, made, {hGraph, dependencies, nullptr, numDependencies}, std::move(params),
                 phGraphNode);
}

CUresult GraphAddHostNode(Model& model, CUgraphNode* phGraphNode, CUgraph hGraph,
                          const CUgraphNode* dependencies, size_t numDependencies,
                          const CUDA_HOST_NODE_PARAMS* nodeParams) {
  Params params;
  const CUresult made = MakeHost(nodeParams->fn, nodeParams->userData, &params);
  return AddMade(model, made, {hGraph, dependencies, nullptr, numDependencies}, std::move(params),
                 phGraphNode);
}

CUresult GraphAddChildGraphNode(Model& model, CUgraphNode* phGraphNode, CUgraph hGraph,
                                const CUgraphNode* dependencies, size_t numDependencies,
                                CUgraph childGraph) {
  return AddChild(model, {hGraph, dependencies, nullptr, numDependencies}, childGraph,
                  CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE, phGraphNode);
}

CUresult GraphAddEmptyNode(Model& model, CUgraphNode* phGraphNode, CUgraph hGraph,
                           const CUgraphNode* dependencies, size_t numDependencies) {
  return AddNode(model, {hGraph, dependencies, nullptr, numDependencies}, EmptyParams{},
                 phGraphNode);
}

CUresult GraphAddEventRecordNode(Model& model, CUgraphNode* phGraphNode, CUgraph hGraph,
                                 const CUgraphNode* dependencies, size_t numDependencies,
                                 CUevent event) {
  Params params;
  const CUresult made = MakeRecord(model.host, event, &params);
  return AddMade(model, made, {hGraph, dependencies, nullptr, numDependencies}, std::move(params),
                 phGraphNode);
}

CUresult GraphAddEventWaitNode(Model& model, CUgraphNode* phGraphNode, CUgraph hGraph,
                               const CUgraphNode* dependencies, size_t numDependencies,
                               CUevent event) {
  Params params;
  const CUresult made = MakeWait(model.host, event, &params);
  return AddMade(model, made, {hGraph, dependencies, nullptr, numDependencies}, std::move(params),
                 phGraphNode);
}

CUresult GraphAddBatchMemOpNode(Model& model, CUgraphNode* phGraphNode, CUgraph hGraph,
                                const CUgraphNode* dependencies, size_t numDependencies,
                                const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  Params params;
  const CUresult made = MakeBatch(model.host, *nodeParams, &params);
  return AddMade(model, made, {hGraph, dependencies, nullptr, numDependencies}, std::move(params),
                 phGraphNode);
}

CUresult GraphAddMemAllocNode(Model& model, CUgraphNode* phGraphNode, CUgraph hGraph,
                              const CUgraphNode* dependencies, size_t numDependencies,
                              CUDA_MEM_ALLOC_NODE_PARAMS* nodeParams) {
  Params params;
  CUresult result = MakeAlloc(model.host, *nodeParams, &params);
  if (result != CUDA_SUCCESS) return result;
  const CUdeviceptr address = std::get<AllocParams>(params).allocation->address;
  result = AddNode(model, {hGraph, dependencies, nullptr, numDependencies}, std::move(params),
                   phGraphNode);
  if (result == CUDA_SUCCESS) nodeParams->dptr = address;
  return result;
}

CUresult GraphAddMemFreeNode(Model& model, CUgraphNode* phGraphNode, CUgraph hGraph,
                             const CUgraphNode* dependencies, size_t numDependencies,
                             CUdeviceptr dptr) {
  return AddNode(model, {hGraph, dependencies, nullptr, numDependencies}, FreeParams{dptr},
                 phGraphNode);
}

CUresult GraphAddNode(Model& model, CUgraphNode* phGraphNode, CUgraph hGraph,
                      const CUgraphNode* dependencies, const CUgraphEdgeData* dependencyData,
                      size_t numDependencies, CUgraphNodeParams* nodeParams) {
  const Place place{hGraph, dependencies, dependencyData, numDependencies};
  if (nodeParams->type == CU_GRAPH_NODE_TYPE_GRAPH) {
    return AddChild(model, place, nodeParams->graph.graph, nodeParams->graph.ownership,
                    phGraphNode);
  }
  if (nodeParams->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
    return AddConditional(model, place, &nodeParams->conditional, phGraphNode);
  Params params;
  CUresult result = MakeAny(model.host, *nodeParams, nullptr, &params);
  if (result != CUDA_SUCCESS) return result;
  const auto* alloc = std::get_if<AllocParams>(&params);
  const CUdeviceptr address = alloc == nullptr ? 0 : alloc->allocation->address;
  result = AddNode(model, place, std::move(params), phGraphNode);
  if (result == CUDA_SUCCESS && address != 0) nodeParams->alloc.dptr = address;
  return result;
}

CUresult GraphConditionalHandleCreate(Model& model, CUgraphConditionalHandle* pHandle_out,
                                      CUgraph hGraph, CUcontext ctx,
                                      unsigned int defaultLaunchValue, unsigned int flags) {
  uint64_t root = 0;
  ConditionalHandle made;
  made.initial = defaultLaunchValue;
  made.assigns = flags != 0;
  made.context = ctx;
  CUresult result =
      ctx == nullptr ? model.host.CurrentContext(&made.context) : model.host.CheckContext(ctx);
  if (result != CUDA_SUCCESS) return result;
  {
    Locked locked(model);
    const Graph* graph = model.FindGraph(hGraph);
    if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    while (graph->owner != nullptr) graph = graph->owner->graph;
    root = graph->handle;
  }
  result = model.host.NewConditional(root, &made);
  if (result != CUDA_SUCCESS) return result;
  Locked locked(model);
  Graph* graph = model.FindGraph(hGraph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  graph->conditionals.push_back(made);
  *pHandle_out = made.value;
  return CUDA_SUCCESS;
}

CUresult GraphAddDependencies(Model& model, CUgraph hGraph, const CUgraphNode* from,
                              const CUgraphNode* to, const CUgraphEdgeData* edgeData,
                              size_t numDependencies) {
  Locked locked(model);
  Graph* graph = model.FindGraph(hGraph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<NamedEdge> edges;
  CUresult result = FindEdges(model, *graph, from, to, edgeData, numDependencies, &edges);
  for (const NamedEdge& edge : edges) {
    if (result == CUDA_SUCCESS) result = CheckEdge(edge.data, edge.from->type(), edge.to->type());
  }
  size_t added = 0;
  while (result == CUDA_SUCCESS && added < edges.size()) {
    const NamedEdge& edge = edges[added];
    if (Graph::Connected(*edge.from, *edge.to, edge.data)) {
      result = CUDA_ERROR_INVALID_VALUE;
    } else {
      graph->Connect(edge.from, edge.to, edge.data);
      ++added;
    }
  }
  if (result == CUDA_SUCCESS) return CUDA_SUCCESS;
  while (added > 0) {
    const NamedEdge& edge = edges[--added];
    graph->Disconnect(edge.from, edge.to, edge.data);
  }
  return result;
}

CUresult GraphRemoveDependencies(Model& model, CUgraph hGraph, const CUgraphNode* from,
                                 const CUgraphNode* to, const CUgraphEdgeData* edgeData,
                                 size_t numDependencies) {
  Locked locked(model);
  Graph* graph = model.FindGraph(hGraph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (graph->has_memory_nodes) return CUDA_ERROR_NOT_SUPPORTED;
  std::vector<NamedEdge> edges;
  const CUresult result = FindEdges(model, *graph, from, to, edgeData, numDependencies, &edges);
  if (result != CUDA_SUCCESS) return result;
  const bool all = std::all_of(edges.begin(), edges.end(), [](const NamedEdge& edge) {
    return Graph::Connected(*edge.from, *edge.to, edge.data);
  });
  if (!all) return CUDA_ERROR_INVALID_VALUE;
  for (const NamedEdge& edge : edges) graph->Disconnect(edge.from, edge.to, edge.data);
  return CUDA_SUCCESS;
}

CUresult GraphDestroyNode(Model& model, CUgraphNode hNode) {
  Locked locked(model);
  Node* node = model.FindNode(hNode);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (node->graph->has_memory_nodes) return CUDA_ERROR_NOT_SUPPORTED;
  model.WithdrawNode(node);
  // What is inside of the node goes without the lock.
  locked.Drop(std::make_shared<Params>(std::move(node->params)));
  node->params = EmptyParams{};
  node->graph->Remove(node);
  return CUDA_SUCCESS;
}

CUresult GraphClone(Model& model, CUgraph* phGraphClone, CUgraph originalGraph) {
  Locked locked(model);
  const Graph* graph = model.FindGraph(originalGraph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (graph->has_memory_nodes) return CUDA_ERROR_NOT_SUPPORTED;
  std::shared_ptr<Graph> copy = Clone(*graph);
  model.Publish(copy.get());
  *phGraphClone = As<CUgraph>(copy->handle);
  model.graphs[copy->handle] = std::move(copy);
  return CUDA_SUCCESS;
}

CUresult GraphDestroy(Model& model, CUgraph hGraph) {
  Locked locked(model);
  auto entry = model.graphs.extract(Raw(hGraph));
  if (entry.empty()) return CUDA_ERROR_INVALID_VALUE;
  model.Withdraw(entry.mapped().get());
  locked.Drop(std::move(entry.mapped()));
  return CUDA_SUCCESS;
}

}  // namespace rgpu::graph
