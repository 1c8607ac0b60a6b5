#include "rgpu_common/native/graph/instance.h"

#include <algorithm>
#include <set>

namespace rgpu::graph {
namespace {

constexpr uint64_t kFlags =
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
    CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

void Number(const Graph& graph, Instance* out) {
  for (const auto& node : graph.nodes()) {
    if (node->original != 0)
      out->by_template[node->original] = static_cast<uint32_t>(out->nodes.size());
    out->nodes.push_back({node.get(), true});
    for (const auto& inside : InsideOf(*node)) Number(*inside, out);
  }
}

bool MayBeInBody(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return true;
    default:
      return false;
  }
}

// The first check that fails, through everything inside of the graph.
class Checker {
 public:
  CUgraphInstantiateResult why = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  Node* node = nullptr;

  void Check(const Graph& graph, bool in_body) {
    if (InOrder(graph).size() != graph.nodes().size()) {
      Refuse(CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE, InCycle(graph));
      return;
    }
    for (const auto& owned : graph.nodes()) {
      if (in_body && !MayBeInBody(owned->type())) {
        Refuse(CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED, owned.get());
        return;
      }
      const auto* conditional = std::get_if<ConditionalParams>(&owned->params);
      if (conditional != nullptr) used_.insert(conditional->handle);
      for (const auto& inside : InsideOf(*owned)) {
        Check(*inside, in_body || conditional != nullptr);
        if (why != CUDA_GRAPH_INSTANTIATE_SUCCESS) return;
      }
    }
  }
  // After Check: every handle of the graph is read by a node.
  void CheckHandles(const Graph& graph) {
    for (const ConditionalHandle& handle : graph.conditionals) {
      if (!used_.contains(handle.value))
        Refuse(CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED, nullptr);
    }
  }

 private:
  void Refuse(CUgraphInstantiateResult reason, Node* where) {
    why = reason;
    node = where;
  }
  static Node* InCycle(const Graph& graph) {
    const std::vector<Node*> sorted = InOrder(graph);
    const std::set<const Node*> good(sorted.begin(), sorted.end());
    const auto& nodes = graph.nodes();
    const auto it = std::find_if(nodes.begin(), nodes.end(),
                                 [&](const auto& owned) { return !good.contains(owned.get()); });
    return it->get();
  }

  std::set<CUgraphConditionalHandle> used_;
};

}  // namespace

Exec::~Exec() = default;

bool Instance::Find(CUgraphNode node, uint32_t* number) const {
  const auto it = by_template.find(reinterpret_cast<uint64_t>(node));
  if (it == by_template.end()) return false;
  *number = it->second;
  return true;
}

Instance MakeInstance(std::shared_ptr<Graph> graph, uint64_t flags) {
  Instance out;
  out.flags = flags;
  Number(*graph, &out);
  out.graph = std::move(graph);
  return out;
}

CUresult CheckTemplate(const Graph& graph, uint64_t flags, CUgraphInstantiateResult* why,
                       Node** node) {
  *node = nullptr;
  *why = CUDA_GRAPH_INSTANTIATE_ERROR;
  if ((flags & ~kFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  // Kernels cannot launch graphs here.
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  const Extent extent = ExtentOf(graph);
  if (extent.nodes > kMaxNodes || extent.edges > kMaxEdges || extent.depth > kMaxDepth)
    return CUDA_ERROR_NOT_SUPPORTED;
  // Memory nodes have one address, which two executables cannot share.
  if (graph.has_memory_nodes && graph.executables != 0) return CUDA_ERROR_NOT_SUPPORTED;
  Checker checker;
  checker.Check(graph,
                graph.owner != nullptr && graph.owner->type() == CU_GRAPH_NODE_TYPE_CONDITIONAL);
  if (checker.why == CUDA_GRAPH_INSTANTIATE_SUCCESS) checker.CheckHandles(graph);
  *why = checker.why;
  *node = checker.node;
  if (*why == CUDA_GRAPH_INSTANTIATE_SUCCESS) return CUDA_SUCCESS;
  return *why == CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED ? CUDA_ERROR_NOT_SUPPORTED
                                                                     : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace rgpu::graph
