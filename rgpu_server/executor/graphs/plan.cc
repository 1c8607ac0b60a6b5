#include "rgpu_server/executor/graphs/plan.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <optional>
#include <utility>
#include <variant>

#include "gen/cuda_abi.gen.h"

namespace rgpu::exec {

namespace {

// True if `is` holds for the node, or for a node of the graphs inside it.
template <typename Is>
bool Within(const wire::GraphNode& node, Is is) {
  const auto inside = [&](const wire::GraphDefinition& graph) {
    return std::ranges::any_of(graph.nodes, [&](const auto& one) { return Within(one, is); });
  };
  if (is(node)) return true;
  if (const auto* child = std::get_if<wire::GraphChild>(&node.parameters)) {
    return inside(child->graph);
  }
  const auto* conditional = std::get_if<wire::GraphConditional>(&node.parameters);
  return conditional != nullptr && std::ranges::any_of(conditional->bodies, inside);
}

bool IsWait(const wire::GraphMemoryOperation& operation) {
  return operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
         operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

bool IsValueWait(const wire::GraphNode& node) {
  const auto* batch = std::get_if<wire::GraphMemoryOperations>(&node.parameters);
  return batch != nullptr && std::ranges::any_of(batch->operations, IsWait);
}

// What other streams do may end the wait.
bool WaitsForOthers(const wire::GraphNode& node) {
  return IsValueWait(node) || std::holds_alternative<wire::GraphEventWait>(node.parameters);
}

uint64_t Pair(const wire::GraphEdge& edge) { return uint64_t{edge.from} << 32 | edge.to; }

// The nodes that the edges join, sorted. No hash table: the client could choose edges that all fall
// into one bucket.
std::vector<uint64_t> PairsOf(const std::vector<wire::GraphEdge>& edges) {
  std::vector<uint64_t> pairs;
  pairs.reserve(edges.size());
  std::ranges::transform(edges, std::back_inserter(pairs), Pair);
  std::ranges::sort(pairs);
  return pairs;
}

// Sorts by the graph's edges. False: there is a cycle. With `in_line`, nodes that wait for others
// come only when nothing else can; it is set to false if then a wait for a value is not the only
// one.
bool Sort(const wire::GraphDefinition& graph, std::vector<uint32_t>* order,
          bool* in_line = nullptr) {
  const size_t count = graph.nodes.size();
  std::vector<std::vector<uint32_t>> after(count);
  std::vector<uint32_t> before(count);
  for (const wire::GraphEdge& edge : graph.edges) {
    after[edge.from].push_back(edge.to);
    ++before[edge.to];
  }
  std::deque<uint32_t> ready;
  std::deque<uint32_t> late;
  size_t late_values = 0;  // the nodes in `late` that wait for values
  const auto add = [&](uint32_t node) {
    const bool waits = in_line != nullptr && Within(graph.nodes[node], WaitsForOthers);
    (waits ? late : ready).push_back(node);
    if (waits && WaitsForValue(graph.nodes[node])) ++late_values;
  };
  for (uint32_t i = 0; i < count; ++i) {
    if (before[i] == 0) add(i);
  }
  while (!ready.empty() || !late.empty()) {
    const bool is_late = ready.empty();
    if (is_late && late.size() > 1 && late_values != 0) *in_line = false;
    std::deque<uint32_t>& from = is_late ? late : ready;
    const uint32_t node = from.front();
    from.pop_front();
    if (is_late && WaitsForValue(graph.nodes[node])) --late_values;
    order->push_back(node);
    for (const uint32_t next : after[node]) {
      if (--before[next] == 0) add(next);
    }
  }
  return order->size() == count;
}

// Adds the edges that make barriers of the nodes that wait.
class Barriers {
 public:
  // `own`: the pairs of the graph's own edges.
  Barriers(GraphPlan* plan, std::vector<uint64_t> own) : plan_(plan), own_(std::move(own)) {}

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
  // Never called twice with the same nodes.
  void Join(uint32_t from, uint32_t to) {
    const wire::GraphEdge edge{from, to, 0, 0, 0};
    if (!std::ranges::binary_search(own_, Pair(edge))) plan_->edges.push_back(edge);
  }

  GraphPlan* const plan_;
  const std::vector<uint64_t> own_;
  std::optional<uint32_t> barrier_;
  std::vector<uint32_t> since_;  // nodes behind the barrier
};

}  // namespace

bool WaitsForClient(const wire::GraphNode& node) {
  return Within(node, [](const wire::GraphNode& one) {
    const auto* copy = std::get_if<wire::GraphCopy>(&one.parameters);
    return std::holds_alternative<wire::GraphHostFunction>(one.parameters) ||
           (copy != nullptr && copy->has_host_side());
  });
}

bool WaitsForValue(const wire::GraphNode& node) { return Within(node, IsValueWait); }

bool AnyWaitsForValue(const wire::GraphDefinition& graph) {
  return std::ranges::any_of(graph.nodes, WaitsForValue);
}

bool ValuesInLine(const wire::GraphDefinition& graph) {
  if (!AnyWaitsForValue(graph)) return true;
  std::vector<uint32_t> order;
  bool in_line = true;
  if (!Sort(graph, &order, &in_line) || !in_line) return false;
  return std::ranges::all_of(graph.nodes, [](const wire::GraphNode& node) {
    const auto* child = std::get_if<wire::GraphChild>(&node.parameters);
    if (child != nullptr) return ValuesInLine(child->graph);
    // A body of a conditional node may run any number of times, and a halt once.
    return IsValueWait(node) || !WaitsForValue(node);
  });
}

bool PlanGraph(const wire::GraphDefinition& graph, GraphPlan* plan, bool halts) {
  plan->edges = graph.edges;
  const bool values = halts && AnyWaitsForValue(graph);
  bool in_line = true;
  std::vector<uint64_t> pairs = PairsOf(plan->edges);
  if (std::ranges::adjacent_find(pairs) != pairs.end() ||
      !Sort(graph, &plan->order, values ? &in_line : nullptr)) {
    return false;
  }
  if (!values && std::ranges::none_of(graph.nodes, WaitsForClient)) return true;
  Barriers barriers(plan, std::move(pairs));
  for (const uint32_t place : plan->order) {
    const wire::GraphNode& node = graph.nodes[place];
    barriers.Pass(place, WaitsForClient(node) || (values && WaitsForValue(node)));
    if (values && IsValueWait(node)) plan->halted.push_back(place);
  }
  return true;
}

}  // namespace rgpu::exec
