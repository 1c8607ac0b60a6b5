// How launches of graphs are laid out on lanes.
#include "rgpu_emu/device/graph_layout.h"

#include <algorithm>
#include <random>
#include <set>

#include "tests/native/testing.h"

namespace rgpu::emu {
namespace {

using graph::EmptyParams;
using graph::Graph;
using graph::Node;

std::shared_ptr<const GraphLayout> Lay(const std::shared_ptr<Graph>& graph) {
  return LayOut(graph::MakeInstance(graph, 0));
}

// The steps that are done before a step begins: those of its lane before it, those it waits for,
// and what is done before these.
std::vector<std::set<uint32_t>> DoneBefore(const GraphLayout& layout) {
  std::vector<std::set<uint32_t>> out(layout.steps.size());
  std::vector<uint32_t> last(layout.lanes.size(), kNoNode);
  for (uint32_t i = 0; i < layout.steps.size(); ++i) {
    const auto add = [&](uint32_t earlier) {
      CHECK(earlier < i);
      out[i].insert(earlier);
      out[i].insert(out[earlier].begin(), out[earlier].end());
    };
    for (const uint32_t earlier : layout.steps[i].after) add(earlier);
    uint32_t& end = last[layout.steps[i].lane];
    if (end != kNoNode) add(end);
    end = i;
  }
  return out;
}

TEST(layout, a_chain_is_one_lane) {
  auto graph = std::make_shared<Graph>();
  Node* node = graph->Add(EmptyParams{}, {});
  for (int i = 0; i < 100; ++i) node = graph->Add(EmptyParams{}, {{node, {}}});
  const auto layout = Lay(graph);
  CHECK_EQ(layout->lanes.size(), 1U);
  CHECK_EQ(layout->lanes[0].size(), 101U);
}

TEST(layout, lanes_are_used_again_after_a_join) {
  auto graph = std::make_shared<Graph>();
  Node* join = graph->Add(EmptyParams{}, {});
  for (int i = 0; i < 20; ++i) {
    std::vector<graph::Edge> branches;
    for (int branch = 0; branch < 3; ++branch)
      branches.push_back({graph->Add(EmptyParams{}, {{join, {}}}), {}});
    join = graph->Add(EmptyParams{}, branches);
  }
  CHECK_EQ(Lay(graph)->lanes.size(), 3U);
}

TEST(layout, a_child_graph_is_joined_before_what_follows) {
  auto inner = std::make_shared<Graph>();
  for (int i = 0; i < 3; ++i) inner->Add(EmptyParams{}, {});
  auto graph = std::make_shared<Graph>();
  Node* child = graph->Add(graph::ChildParams{inner}, {});
  graph->Add(EmptyParams{}, {{child, {}}});
  const auto layout = Lay(graph);
  // The child's node, its three nodes, the join, the last node.
  CHECK_EQ(layout->steps.size(), 6U);
  CHECK_EQ(layout->steps[4].node, kNoNode);
  CHECK_EQ(DoneBefore(*layout)[5].size(), 5U);
}

TEST(layout, bodies_have_a_layout_of_their_own) {
  graph::ConditionalParams conditional;
  conditional.bodies = {std::make_shared<Graph>(), std::make_shared<Graph>()};
  conditional.bodies[1]->Add(EmptyParams{}, {});
  conditional.bodies[1]->Add(EmptyParams{}, {});
  auto graph = std::make_shared<Graph>();
  graph->Add(conditional, {});
  const auto layout = Lay(graph);
  CHECK_EQ(layout->steps.size(), 1U);
  CHECK_EQ(layout->steps[0].bodies.size(), 2U);
  CHECK(layout->steps[0].bodies[0]->steps.empty());
  CHECK_EQ(layout->steps[0].bodies[1]->lanes.size(), 1U);
  CHECK_EQ(layout->steps[0].bodies[1]->steps[1].node, 2U);
}

TEST(layout, every_edge_of_a_random_graph_is_kept) {
  std::mt19937 random(5);
  for (int turn = 0; turn < 30; ++turn) {
    auto graph = std::make_shared<Graph>();
    for (uint32_t i = 0; i < 80; ++i) {
      std::vector<graph::Edge> before;
      for (const auto& node : graph->nodes()) {
        if (random() % (4 + static_cast<unsigned>(turn)) == 0) before.push_back({node.get(), {}});
      }
      graph->Add(EmptyParams{}, before);
    }
    const graph::Instance instance = graph::MakeInstance(graph, 0);
    const auto layout = LayOut(instance);
    CHECK(layout->lanes.size() <= kMaxLanes);
    const auto done = DoneBefore(*layout);
    std::vector<uint32_t> step_of(80);
    for (uint32_t i = 0; i < layout->steps.size(); ++i) step_of[layout->steps[i].node] = i;
    for (uint32_t i = 0; i < 80; ++i) {
      for (const graph::Edge& edge : instance.nodes[i].node->before) {
        const auto first = std::find_if(instance.nodes.begin(), instance.nodes.end(),
                                        [&](const auto& entry) { return entry.node == edge.node; });
        const auto number = static_cast<uint32_t>(first - instance.nodes.begin());
        CHECK(done[step_of[i]].contains(step_of[number]));
      }
    }
  }
}

}  // namespace
}  // namespace rgpu::emu
