#include "rgpu_server/executor/graphs/plan.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <unordered_set>
#include <variant>

namespace rgpu::exec {

namespace {

bool AnyWaits(const wire::GraphDefinition& graph) {
  return std::ranges::any_of(graph.nodes, WaitsForClient);
}

uint64_t Pair(const wire::GraphEdge& edge) { return uint64_t{edge.from} << 32 | edge.to; }

// False: there is a cycle.
bool Sort(const wire::GraphDefinition& graph, std::vector<uint32_t>* order) {
  const size_t count = graph.nodes.size();
  std::vector<std::vector<uint32_t>> after(count);
  std::vector<uint32_t> before(count);
  for (const wire::GraphEdge& edge : graph.edges) {
    after[edge.from].push_back(edge.to);
    ++before[edge.to];
  }
  std::deque<uint32_t> ready;
  for (uint32_t i = 0; i < count; ++i) {
    if (before[i] == 0) ready.push_back(i);
  }
  while (!ready.empty()) {
    const uint32_t node = ready.front();
    ready.pop_front();
    order->push_back(node);
    for (const uint32_t next : after[node]) {
      if (--before[next] == 0) ready.push_back(next);
    }
  }
  return order->size() == count;
}

// Adds the edges that make barriers of the nodes that wait.
class Barriers {
 public:
  explicit Barriers(GraphPlan* plan) : plan_(plan) {
    for (const wire::GraphEdge& edge : plan->edges) known_.insert(Pair(edge));
  }

  void Pass(uint32_t node, bool waits) {
    if (barrier_ && (!waits || since_.empty())) Join(*barrier_, node);
    if (!waits) {
      since_.push_back(node);
      return;
    }
    for (const uint32_t earlier : since_) Join(earlier, node);
    since_.clear();
    barrier_ = node;
  }

 private:
  void Join(uint32_t from, uint32_t to) {
    const wire::GraphEdge edge{from, to, 0, 0, 0};
    if (known_.insert(Pair(edge)).second) plan_->edges.push_back(edge);
  }

  GraphPlan* const plan_;
  std::unordered_set<uint64_t> known_;
  std::optional<uint32_t> barrier_;
  std::vector<uint32_t> since_;  // nodes behind the barrier
};

bool HasDuplicates(const std::vector<wire::GraphEdge>& edges) {
  std::unordered_set<uint64_t> seen;
  return std::ranges::any_of(
      edges, [&](const wire::GraphEdge& edge) { return !seen.insert(Pair(edge)).second; });
}

}  // namespace

bool WaitsForClient(const wire::GraphNode& node) {
  if (std::holds_alternative<wire::GraphHostFunction>(node.parameters)) return true;
  if (const auto* copy = std::get_if<wire::GraphCopy>(&node.parameters)) {
    return copy->has_host_side();
  }
  if (const auto* child = std::get_if<wire::GraphChild>(&node.parameters)) {
    return AnyWaits(child->graph);
  }
  const auto* conditional = std::get_if<wire::GraphConditional>(&node.parameters);
  return conditional != nullptr && std::ranges::any_of(conditional->bodies, AnyWaits);
}

bool PlanGraph(const wire::GraphDefinition& graph, GraphPlan* plan) {
  plan->edges = graph.edges;
  if (HasDuplicates(plan->edges) || !Sort(graph, &plan->order)) return false;
  if (!AnyWaits(graph)) return true;
  Barriers barriers(plan);
  for (const uint32_t node : plan->order) barriers.Pass(node, WaitsForClient(graph.nodes[node]));
  return true;
}

}  // namespace rgpu::exec
