#include "rgpu_common/native/graph/compare.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace rgpu::graph {
namespace {

// The host may be pinned or pageable, and a unified address may be either, so only the class of a
// side must stay as it was.
bool SameSides(const CUDA_MEMCPY3D& a, const CUDA_MEMCPY3D& b) {
  return a.srcMemoryType == b.srcMemoryType && a.dstMemoryType == b.dstMemoryType;
}

bool SameCooperation(const Attributes& a, const Attributes& b) {
  const auto* first = FindAttribute(a, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
  const auto* second = FindAttribute(b, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
  return (first != nullptr && first->cooperative != 0) ==
         (second != nullptr && second->cooperative != 0);
}

// Whether an executable may take the second parameters in place of the first; both are of the same
// type. What is inside of the nodes is compared elsewhere.
struct Replaceable {
  CUgraphExecUpdateResult operator()(const KernelParams& a, const KernelParams& b) const {
    if (a.context != b.context) return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
    return SameCooperation(a.attributes, b.attributes)
               ? CU_GRAPH_EXEC_UPDATE_SUCCESS
               : CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
  }
  CUgraphExecUpdateResult operator()(const CopyParams& a, const CopyParams& b) const {
    return If(a.context == b.context && SameSides(a.copy, b.copy));
  }
  CUgraphExecUpdateResult operator()(const SetParams& a, const SetParams& b) const {
    return If(a.set.ctx == b.set.ctx);
  }
  CUgraphExecUpdateResult operator()(const BatchParams& a, const BatchParams& b) const {
    return If(a.context == b.context);
  }
  CUgraphExecUpdateResult operator()(const AllocParams& a, const AllocParams& b) const {
    return a.allocation == b.allocation ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                        : CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
  }
  CUgraphExecUpdateResult operator()(const FreeParams& a, const FreeParams& b) const {
    return a.address == b.address ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                  : CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
  }
  // The handles of another graph come with its default values.
  CUgraphExecUpdateResult operator()(const ConditionalParams& a, const ConditionalParams& b) const {
    return If(a.context == b.context && a.type == b.type && a.bodies.size() == b.bodies.size());
  }
  CUgraphExecUpdateResult operator()(const auto&, const auto&) const {
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
  }

 private:
  static CUgraphExecUpdateResult If(bool same) {
    return same ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
  }
};

using Pairs = std::unordered_map<const Node*, const Node*>;  // old node -> new node

Difference CompareEdges(const Node& old_node, const Node& new_node, const Pairs& pairs) {
  for (size_t i = 0; i < old_node.before.size(); ++i) {
    const Edge& was = old_node.before[i];
    const Edge& is = new_node.before[i];
    if (pairs.at(was.node) != is.node || !SameEdge(was.data, is.data))
      return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, &new_node, is.node};
  }
  return {};
}

Difference CompareNodes(const Node& old_node, const Node& new_node, const Pairs& pairs) {
  if (old_node.type() != new_node.type())
    return {CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, &new_node, nullptr};
  if (old_node.before.size() != new_node.before.size())
    return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, &new_node, nullptr};
  const Difference edges = CompareEdges(old_node, new_node, pairs);
  if (edges.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return edges;
  const CUgraphExecUpdateResult result =
      std::visit(Replaceable(), old_node.params, new_node.params);
  if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return {result, &new_node, nullptr};
  const auto old_inside = InsideOf(old_node);
  const auto new_inside = InsideOf(new_node);
  for (size_t i = 0; i < old_inside.size(); ++i) {
    const Difference inside = Compare(*old_inside[i], *new_inside[i]);
    if (inside.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return inside;
  }
  return {};
}

}  // namespace

Difference Compare(const Graph& old_graph, const Graph& new_graph) {
  const auto& was = old_graph.nodes();
  const auto& is = new_graph.nodes();
  if (was.size() != is.size())
    return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, nullptr, nullptr};
  // Nodes are paired in the order in which they were added.
  Pairs pairs;
  for (size_t i = 0; i < was.size(); ++i) pairs[was[i].get()] = is[i].get();
  for (size_t i = 0; i < was.size(); ++i) {
    const Difference found = CompareNodes(*was[i], *is[i], pairs);
    if (found.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return found;
  }
  return {};
}

CUresult MayReplace(const Node& node, const Params& params) {
  if (node.type() != TypeOf(params)) return CUDA_ERROR_INVALID_VALUE;
  return std::visit(Replaceable(), node.params, params) == CU_GRAPH_EXEC_UPDATE_SUCCESS
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

namespace {

const void* KeepOf(const Graph& root, CUgraphConditionalHandle value) {
  const auto found = std::ranges::find(root.conditionals, value, &ConditionalHandle::value);
  return found == root.conditionals.end() ? nullptr : found->keep.get();
}

struct Roots {
  const Graph& was;
  const Graph& is;

  // A driver may give handles of two graphs the same value.
  bool Same(CUgraphConditionalHandle one, CUgraphConditionalHandle other) const {
    return one == other && KeepOf(was, one) == KeepOf(is, other);
  }
};

bool SameIn(const Roots& roots, const Graph& old_graph, const Graph& new_graph) {
  for (size_t i = 0; i < old_graph.nodes().size(); ++i) {
    const Node& was = *old_graph.nodes()[i];
    const Node& is = *new_graph.nodes()[i];
    const auto* one = std::get_if<ConditionalParams>(&was.params);
    const auto* other = std::get_if<ConditionalParams>(&is.params);
    if (one != nullptr && !roots.Same(one->handle, other->handle)) return false;
    const auto inside = InsideOf(was);
    const auto theirs = InsideOf(is);
    for (size_t j = 0; j < inside.size(); ++j) {
      if (!SameIn(roots, *inside[j], *theirs[j])) return false;
    }
  }
  return true;
}

}  // namespace

bool SameHandles(const Graph& old_graph, const Graph& new_graph) {
  return SameIn({old_graph, new_graph}, old_graph, new_graph);
}

void SwapParams(Graph* graph, Graph* other) {
  graph->conditionals.swap(other->conditionals);
  for (size_t i = 0; i < graph->nodes().size(); ++i) {
    Node& node = *graph->nodes()[i];
    Node& twin = *other->nodes()[i];
    const auto inside = InsideOf(node);
    if (inside.empty()) {
      std::swap(node.params, twin.params);
      continue;
    }
    // The graphs stay, because numbers point to their nodes.
    const auto theirs = InsideOf(twin);
    auto* conditional = std::get_if<ConditionalParams>(&node.params);
    if (conditional != nullptr) {
      std::swap(conditional->handle, std::get<ConditionalParams>(twin.params).handle);
    }
    for (size_t j = 0; j < inside.size(); ++j) SwapParams(inside[j].get(), theirs[j].get());
  }
}

}  // namespace rgpu::graph
