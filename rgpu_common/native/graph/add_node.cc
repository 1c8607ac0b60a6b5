#include "rgpu_common/native/graph/add_node.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace rgpu::graph {
namespace {

// How many graphs the graph is inside of, with itself.
uint32_t LevelOf(const Graph& graph) {
  uint32_t level = 1;
  for (const Graph* at = &graph; at->owner != nullptr; at = at->owner->graph) ++level;
  return level;
}

// The value is one of the graph or of a graph around it, and no other node of these reads it.
bool OwnsConditional(const Graph& graph, CUgraphConditionalHandle handle) {
  for (const Graph* at = &graph;; at = at->owner->graph) {
    const bool owns = std::any_of(at->conditionals.begin(), at->conditionals.end(),
                                  [&](const auto& known) { return known.value == handle; });
    if (owns) return true;
    if (at->owner == nullptr) return false;
  }
}

bool Reads(const Graph& graph, CUgraphConditionalHandle handle) {
  for (const auto& node : graph.nodes()) {
    const auto* conditional = std::get_if<ConditionalParams>(&node->params);
    if (conditional != nullptr && conditional->handle == handle) return true;
    for (const auto& inside : InsideOf(*node)) {
      if (Reads(*inside, handle)) return true;
    }
  }
  return false;
}

const Graph& RootOf(const Graph& graph) {
  const Graph* at = &graph;
  while (at->owner != nullptr) at = at->owner->graph;
  return *at;
}

bool Frees(const Graph& graph, CUdeviceptr address) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [address](const auto& node) {
    const auto* free = std::get_if<FreeParams>(&node->params);
    return free != nullptr && free->address == address;
  });
}

// The rules of memory nodes.
CUresult CheckMemory(const Model& model, const Graph& graph, const Params& params) {
  const auto* free = std::get_if<FreeParams>(&params);
  if (free == nullptr && !std::holds_alternative<AllocParams>(params)) return CUDA_SUCCESS;
  if (graph.owner != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (free == nullptr) return CUDA_SUCCESS;
  return model.memory.Knows(free->address) && !Frees(graph, free->address)
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

void Finish(Model& model, Node* node, CUgraphNode* out) {
  if (const auto* alloc = std::get_if<AllocParams>(&node->params)) {
    node->graph->has_memory_nodes = true;
    model.memory.Know(alloc->allocation);
  }
  if (std::holds_alternative<FreeParams>(node->params)) node->graph->has_memory_nodes = true;
  model.PublishNode(node);
  *out = As<CUgraphNode>(node->handle);
}

CUresult CheckChild(const Model& model, const Graph& graph, const Graph& child, bool move) {
  if (&child == &graph || (move && &RootOf(graph) == &child)) return CUDA_ERROR_INVALID_VALUE;
  if (child.has_memory_nodes && !move) return CUDA_ERROR_NOT_SUPPORTED;
  // Only a graph that the program owns can be given away.
  if (move && !model.graphs.contains(child.handle)) return CUDA_ERROR_INVALID_VALUE;
  const Extent extent = ExtentOf(child);
  const bool fits = LevelOf(graph) + extent.depth <= kMaxDepth && extent.nodes <= kMaxNodes;
  return fits ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

CUresult FindDependencies(const Model& model, const Graph& graph, const Place& place,
                          CUgraphNodeType to, std::vector<Edge>* before) {
  std::set<std::tuple<const Node*, uint8_t, uint8_t, uint8_t>> seen;
  for (size_t i = 0; i < place.count; ++i) {
    Node* node = model.FindNode(place.dependencies[i]);
    if (node == nullptr || node->graph != &graph) return CUDA_ERROR_INVALID_VALUE;
    const CUgraphEdgeData data = place.data == nullptr ? CUgraphEdgeData{} : place.data[i];
    const CUresult bad = CheckEdge(data, node->type(), to);
    if (bad != CUDA_SUCCESS) return bad;
    if (!seen.insert({node, data.from_port, data.to_port, data.type}).second)
      return CUDA_ERROR_INVALID_VALUE;
    before->push_back({node, data});
  }
  return CUDA_SUCCESS;
}

CUresult AddNode(Model& model, const Place& place, Params params, CUgraphNode* node) {
  Locked locked(model);
  Graph* graph = model.FindGraph(place.graph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Edge> before;
  CUresult result = FindDependencies(model, *graph, place, TypeOf(params), &before);
  if (result == CUDA_SUCCESS) result = CheckMemory(model, *graph, params);
  if (result == CUDA_SUCCESS) Finish(model, graph->Add(std::move(params), before), node);
  return result;
}

CUresult AddChild(Model& model, const Place& place, CUgraph child,
                  CUgraphChildGraphNodeOwnership ownership, CUgraphNode* node) {
  if (ownership > CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE) return CUDA_ERROR_INVALID_VALUE;
  const bool move = ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
  Locked locked(model);
  Graph* graph = model.FindGraph(place.graph);
  Graph* inside = model.FindGraph(child);
  if (graph == nullptr || inside == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Edge> before;
  CUresult result = FindDependencies(model, *graph, place, CU_GRAPH_NODE_TYPE_GRAPH, &before);
  if (result == CUDA_SUCCESS) result = CheckChild(model, *graph, *inside, move);
  if (result != CUDA_SUCCESS) return result;
  if (!move) {
    Finish(model, graph->Add(ChildParams{Clone(*inside)}, before), node);
    return CUDA_SUCCESS;
  }
  graph->has_memory_nodes |= inside->has_memory_nodes;
  Node* made = graph->Add(ChildParams{model.graphs.extract(inside->handle).mapped()}, before);
  // The graph inside keeps its handles.
  made->handle = NewHandle(HandleKind::kNode);
  model.nodes[made->handle] = made;
  *node = As<CUgraphNode>(made->handle);
  return CUDA_SUCCESS;
}

CUresult AddConditional(Model& model, const Place& place, CUDA_CONDITIONAL_NODE_PARAMS* params,
                        CUgraphNode* node) {
  ConditionalParams conditional;
  conditional.handle = params->handle;
  conditional.type = params->type;
  conditional.context = params->ctx;
  CUresult result = params->ctx == nullptr ? model.host.CurrentContext(&conditional.context)
                                           : model.host.CheckContext(params->ctx);
  if (result != CUDA_SUCCESS) return result;
  const uint32_t most = params->type == CU_GRAPH_COND_TYPE_SWITCH  ? kMaxBodies
                        : params->type == CU_GRAPH_COND_TYPE_IF    ? 2
                        : params->type == CU_GRAPH_COND_TYPE_WHILE ? 1
                                                                   : 0;
  if (params->size == 0 || params->size > most) return CUDA_ERROR_INVALID_VALUE;
  Locked locked(model);
  Graph* graph = model.FindGraph(place.graph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Edge> before;
  result = FindDependencies(model, *graph, place, CU_GRAPH_NODE_TYPE_CONDITIONAL, &before);
  if (result != CUDA_SUCCESS) return result;
  if (!OwnsConditional(*graph, params->handle) || Reads(RootOf(*graph), params->handle))
    return CUDA_ERROR_INVALID_VALUE;
  if (LevelOf(*graph) + 1 > kMaxDepth) return CUDA_ERROR_NOT_SUPPORTED;
  for (uint32_t i = 0; i < params->size; ++i)
    conditional.bodies.push_back(std::make_shared<Graph>());
  Node* made = graph->Add(std::move(conditional), before);
  Finish(model, made, node);
  params->phGraph_out = std::get<ConditionalParams>(made->params).handles.data();
  return CUDA_SUCCESS;
}

}  // namespace rgpu::graph
