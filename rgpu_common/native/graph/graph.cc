#include "rgpu_common/native/graph/graph.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <queue>
#include <unordered_map>

namespace rgpu::graph {
namespace {

// Ports of a kernel node at which an edge may begin: when it is complete, when all its blocks have
// triggered or ended, when all its blocks have begun.
constexpr unsigned char kPortDefault = 0;
constexpr unsigned char kPortLaunchOrder = 2;

bool Points(const Edge& edge, const Node* node, const CUgraphEdgeData& data) {
  return edge.node == node && SameEdge(edge.data, data);
}

void Erase(std::vector<Edge>* edges, const Node* node, const CUgraphEdgeData& data) {
  const auto it = std::find_if(edges->begin(), edges->end(),
                               [&](const Edge& edge) { return Points(edge, node, data); });
  if (it != edges->end()) edges->erase(it);
}

void EraseAll(std::vector<Edge>* edges, const Node* node) {
  std::erase_if(*edges, [node](const Edge& edge) { return edge.node == node; });
}

Params CloneParams(const Params& params) {
  Params copy = params;
  if (auto* child = std::get_if<ChildParams>(&copy)) child->graph = Clone(*child->graph);
  if (auto* conditional = std::get_if<ConditionalParams>(&copy)) {
    conditional->handles.clear();
    for (auto& body : conditional->bodies) body = Clone(*body);
  }
  return copy;
}

}  // namespace

bool SameEdge(const CUgraphEdgeData& a, const CUgraphEdgeData& b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

bool IsPlain(const CUgraphEdgeData& data) { return SameEdge(data, CUgraphEdgeData{}); }

CUresult CheckEdge(const CUgraphEdgeData& data, CUgraphNodeType from, CUgraphNodeType to) {
  const CUgraphEdgeData zero{};
  if (std::memcmp(data.reserved, zero.reserved, sizeof(data.reserved)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  const bool kernel = from == CU_GRAPH_NODE_TYPE_KERNEL;
  if (data.from_port > (kernel ? kPortLaunchOrder : kPortDefault) || data.to_port != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (data.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT) return CUDA_SUCCESS;
  const bool programmatic = data.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC && kernel &&
                            to == CU_GRAPH_NODE_TYPE_KERNEL && data.from_port != kPortDefault;
  return programmatic ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

Graph::~Graph() = default;

Node* Graph::Add(Params params, const std::vector<Edge>& before) {
  auto made = std::make_unique<Node>();
  Node* node = made.get();
  node->graph = this;
  node->params = std::move(params);
  for (const auto& inside : InsideOf(*node)) inside->owner = node;
  nodes_.push_back(std::move(made));
  for (const Edge& edge : before) Connect(edge.node, node, edge.data);
  return node;
}

void Graph::Remove(Node* node) {
  edges_ -= node->before.size() + node->after.size();
  for (const Edge& edge : node->before) EraseAll(&edge.node->after, node);
  for (const Edge& edge : node->after) EraseAll(&edge.node->before, node);
  const auto it = std::find_if(nodes_.begin(), nodes_.end(),
                               [node](const auto& owned) { return owned.get() == node; });
  nodes_.erase(it);
}

void Graph::Connect(Node* from, Node* to, const CUgraphEdgeData& data) {
  from->after.push_back({to, data});
  to->before.push_back({from, data});
  ++edges_;
}

bool Graph::Disconnect(Node* from, Node* to, const CUgraphEdgeData& data) {
  if (!Connected(*from, *to, data)) return false;
  Erase(&from->after, to, data);
  Erase(&to->before, from, data);
  --edges_;
  return true;
}

bool Graph::Connected(const Node& from, const Node& to, const CUgraphEdgeData& data) {
  // Searches the shorter list.
  const bool forward = from.after.size() <= to.before.size();
  const std::vector<Edge>& edges = forward ? from.after : to.before;
  const Node* other = forward ? &to : &from;
  return std::any_of(edges.begin(), edges.end(),
                     [&](const Edge& edge) { return Points(edge, other, data); });
}

std::vector<std::shared_ptr<Graph>> InsideOf(const Node& node) {
  if (const auto* child = std::get_if<ChildParams>(&node.params)) return {child->graph};
  if (const auto* conditional = std::get_if<ConditionalParams>(&node.params))
    return conditional->bodies;
  return {};
}

Extent ExtentOf(const Graph& graph) {
  Extent out{graph.nodes().size(), graph.edge_count(), 1};
  for (const auto& node : graph.nodes()) {
    for (const auto& inside : InsideOf(*node)) {
      const Extent more = ExtentOf(*inside);
      out.nodes += more.nodes;
      out.edges += more.edges;
      out.depth = std::max(out.depth, more.depth + 1);
    }
  }
  return out;
}

std::vector<Node*> InOrder(const Graph& graph) {
  std::unordered_map<const Node*, size_t> place;
  std::vector<size_t> missing;
  for (const auto& node : graph.nodes()) {
    place[node.get()] = missing.size();
    missing.push_back(node->before.size());
  }
  std::vector<Node*> out;
  size_t next = 0;  // the places before it were looked at
  // Of the places before `next`, those whose turn came later. Usually there are none: most programs
  // add a node behind those that it depends on.
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> late;
  const auto add = [&](size_t at) {
    Node* node = graph.nodes()[at].get();
    out.push_back(node);
    for (const Edge& edge : node->after) {
      const size_t behind = place[edge.node];
      if (--missing[behind] == 0 && behind < next) late.push(behind);
    }
  };
  while (next < missing.size() || !late.empty()) {
    if (!late.empty()) {
      const size_t at = late.top();
      late.pop();
      add(at);
    } else if (const size_t at = next++; missing[at] == 0) {
      add(at);
    }
  }
  return out;
}

std::shared_ptr<Graph> Clone(const Graph& graph) {
  auto copy = std::make_shared<Graph>();
  copy->original = graph.handle;
  copy->has_memory_nodes = graph.has_memory_nodes;
  copy->conditionals = graph.conditionals;
  copy->references.Share(graph.references);
  std::unordered_map<const Node*, Node*> copies;
  for (const auto& node : graph.nodes()) {
    Node* twin = copy->Add(CloneParams(node->params), {});
    twin->original = node->handle;
    copies[node.get()] = twin;
  }
  for (const auto& node : graph.nodes()) {
    for (const Edge& edge : node->before)
      copy->Connect(copies[edge.node], copies[node.get()], edge.data);
  }
  return copy;
}

}  // namespace rgpu::graph
