// Barriers: while a graph waits for its client, none of its other nodes can run.
#include "rgpu_server/executor/graphs/plan.h"

#include <algorithm>
#include <random>

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

}  // namespace
}  // namespace rgpu::exec
