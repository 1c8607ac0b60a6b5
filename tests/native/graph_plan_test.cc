// Barriers: while a graph waits for its client, none of its other nodes can run.
#include "rgpu_server/executor/graphs/plan.h"

#include <algorithm>
#include <random>
#include <string>
#include <string_view>

#include "gen/cuda_abi.gen.h"
#include "tests/native/testing.h"

namespace rgpu::exec {
namespace {

using wire::GraphDefinition;
using wire::GraphEdge;

GraphDefinition Graph(const std::vector<bool>& waits, std::vector<GraphEdge> edges) {
  GraphDefinition graph;
  for (const bool one : waits) {
    wire::GraphNode& node = graph.nodes.emplace_back();
    if (one) node.parameters = wire::GraphHostFunction{};
  }
  graph.edges = std::move(edges);
  return graph;
}

// Which nodes each node comes behind, by the edges of the plan.
std::vector<std::vector<bool>> Behind(const GraphPlan& plan) {
  const size_t count = plan.order.size();
  std::vector<std::vector<bool>> behind(count, std::vector<bool>(count));
  for (const uint32_t node : plan.order) {
    for (const GraphEdge& edge : plan.edges) {
      if (edge.to != node) continue;
      behind[node][edge.from] = true;
      for (size_t i = 0; i < count; ++i) {
        if (behind[edge.from][i]) behind[node][i] = true;
      }
    }
  }
  return behind;
}

TEST(graphs, a_graph_that_does_not_wait_keeps_its_edges) {
  GraphPlan plan;
  CHECK(PlanGraph(Graph({false, false, false}, {{0, 2, 0, 0, 0}}), &plan));
  CHECK_EQ(plan.edges.size(), 1U);
  CHECK_EQ(plan.order.size(), 3U);
}

TEST(graphs, cycles_and_double_edges_are_refused) {
  GraphPlan plan;
  CHECK(!PlanGraph(Graph({false, false}, {{0, 1, 0, 0, 0}, {1, 0, 0, 0, 0}}), &plan));
  plan = {};
  CHECK(!PlanGraph(Graph({false, false}, {{0, 1, 0, 0, 0}, {0, 1, 0, 0, 0}}), &plan));
}

TEST(graphs, a_child_that_waits_makes_its_node_wait) {
  GraphDefinition graph = Graph({false, false}, {});
  graph.nodes[1].parameters = wire::GraphChild{Graph({false, true}, {})};
  CHECK(WaitsForClient(graph.nodes[1]));
  GraphPlan plan;
  CHECK(PlanGraph(graph, &plan));
  CHECK_EQ(plan.edges.size(), 1U);
}

wire::GraphParameters Operation(uint32_t type) {
  return wire::GraphMemoryOperations{0, {{type, 0, 0, 0}}};
}

// Nodes of one letter each: a wait for a value (v) or an event (e), a write of a value (w), or
// something else.
GraphDefinition OfLetters(std::string_view letters, std::vector<GraphEdge> edges) {
  GraphDefinition graph = Graph(std::vector<bool>(letters.size()), std::move(edges));
  for (size_t i = 0; i < letters.size(); ++i) {
    if (letters[i] == 'v') graph.nodes[i].parameters = Operation(CU_STREAM_MEM_OP_WAIT_VALUE_32);
    if (letters[i] == 'w') graph.nodes[i].parameters = Operation(CU_STREAM_MEM_OP_WRITE_VALUE_32);
    if (letters[i] == 'e') graph.nodes[i].parameters = wire::GraphEventWait{};
  }
  return graph;
}

TEST(graphs, what_does_not_come_behind_a_wait_for_a_value_comes_before_it) {
  const GraphDefinition graph = OfLetters("v.w", {{0, 1, 0, 0, 0}});
  CHECK(ValuesInLine(graph));
  GraphPlan plan;
  CHECK(PlanGraph(graph, &plan, true));
  CHECK((plan.order == std::vector<uint32_t>{2, 0, 1}));
  CHECK((plan.halted == std::vector<uint32_t>{0}));
  CHECK(Behind(plan)[0][2]);
  GraphPlan without;
  CHECK(PlanGraph(graph, &without));
  CHECK(without.halted.empty());
  CHECK_EQ(without.edges.size(), 1U);
}

TEST(graphs, waits_for_values_are_in_line_if_the_edges_say_so) {
  CHECK(ValuesInLine(OfLetters("v.v", {{0, 1, 0, 0, 0}, {1, 2, 0, 0, 0}})));
  CHECK(ValuesInLine(OfLetters("w.e", {})));
  CHECK(!ValuesInLine(OfLetters("v.v", {{0, 1, 0, 0, 0}})));
  // The event may be one that comes only when the program has seen what is behind the value.
  CHECK(!ValuesInLine(OfLetters("ve", {})));
  CHECK(ValuesInLine(OfLetters("ve", {{1, 0, 0, 0, 0}})));
}

TEST(graphs, waits_for_values_inside_graphs) {
  GraphDefinition graph = OfLetters("..", {});
  graph.nodes[0].parameters = wire::GraphChild{OfLetters("v.", {})};
  CHECK(WaitsForValue(graph.nodes[0]));
  CHECK(!WaitsForClient(graph.nodes[0]));
  CHECK(ValuesInLine(graph));
  graph.nodes[1].parameters = graph.nodes[0].parameters;
  CHECK(!ValuesInLine(graph));
  graph.edges = {{1, 0, 0, 0, 0}};
  CHECK(ValuesInLine(graph));
  // A body may run any number of times, and a halt once.
  graph.nodes[1].parameters = wire::GraphConditional{0, 0, 0, {OfLetters("v", {})}};
  CHECK(!ValuesInLine(graph));
}

TEST(graphs, every_node_comes_before_or_behind_each_wait) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const auto count = static_cast<uint32_t>(1 + random() % 24);
    std::vector<bool> waits;
    for (uint32_t i = 0; i < count; ++i) waits.push_back(random() % 4 == 0);
    std::vector<GraphEdge> edges;
    for (uint32_t to = 1; to < count; ++to) {
      for (uint32_t from = 0; from < to; ++from) {
        // Against the order of the places, so that the plan has something to sort.
        if (random() % 8 == 0) edges.push_back({count - 1 - from, count - 1 - to, 0, 0, 0});
      }
    }
    GraphPlan plan;
    CHECK(PlanGraph(Graph(waits, edges), &plan));
    const auto behind = Behind(plan);
    for (const GraphEdge& edge : edges) CHECK(behind[edge.to][edge.from]);
    for (uint32_t wait = 0; wait < count; ++wait) {
      for (uint32_t node = 0; node < count && waits[wait]; ++node) {
        CHECK(node == wait || behind[node][wait] != behind[wait][node]);
      }
    }
    CHECK(plan.edges.size() <= edges.size() + 2 * count);
  }
}

// The largest definitions. A plan that compares each node or edge with each other one takes this
// group beyond the time that a group has.
TEST(graphs, many_nodes_that_wait_are_sorted_in_time) {
  GraphDefinition graph = OfLetters(std::string(wire::kMaxGraphNodes - 1, 'e') + 'v', {});
  for (int round = 0; round < 8; ++round) CHECK(!ValuesInLine(graph));
  for (uint32_t i = 0; i + 1 < wire::kMaxGraphNodes; ++i) {
    graph.edges.push_back({i, wire::kMaxGraphNodes - 1, 0, 0, 0});
  }
  for (int round = 0; round < 8; ++round) CHECK(ValuesInLine(graph));
}

// Edges whose nodes, as one number, all leave the same remainder: they fill one bucket of a hash
// table of that size.
TEST(graphs, edges_that_a_client_chooses_are_checked_in_time) {
  constexpr uint64_t kBuckets = 42043;  // one of the sizes that libstdc++ chooses
  std::vector<GraphEdge> edges;
  for (uint32_t from = 0; from < wire::kMaxGraphNodes && edges.size() < kBuckets; ++from) {
    const uint64_t left = (uint64_t{from} << 32) % kBuckets;
    const auto to = static_cast<uint32_t>((kBuckets - left) % kBuckets);
    if (from < to) edges.push_back({from, to, 0, 0, 0});
    if (from < to + kBuckets && to + kBuckets < wire::kMaxGraphNodes) {
      edges.push_back({from, static_cast<uint32_t>(to + kBuckets), 0, 0, 0});
    }
  }
  CHECK(edges.size() > kBuckets / 2);
  const GraphDefinition graph = Graph(std::vector<bool>(wire::kMaxGraphNodes), edges);
  for (int round = 0; round < 40; ++round) {
    GraphPlan plan;
    CHECK(PlanGraph(graph, &plan));
    CHECK_EQ(plan.edges.size(), edges.size());
  }
}

}  // namespace
}  // namespace rgpu::exec
