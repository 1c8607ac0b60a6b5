#include "rgpu_emu/device/graph_layout.h"

#include <algorithm>
#include <array>
#include <unordered_map>

namespace rgpu::emu {
namespace {

using graph::Graph;
using graph::Node;
using Numbers = std::unordered_map<const Node*, uint32_t>;
using Steps = std::vector<uint32_t>;

std::shared_ptr<const GraphLayout> LayOutGraph(const Graph& graph, const Numbers& numbers,
                                               uint32_t most_lanes);

class Builder {
 public:
  Builder(const Numbers& numbers, uint32_t most_lanes)
      : numbers_(numbers), most_lanes_(most_lanes) {}

  // Adds the nodes of `graph` behind `entry`. Returns the steps after which it is done.
  Steps Add(const Graph& graph, const Steps& entry) {
    std::unordered_map<const Node*, uint32_t> last;  // the step after which a node is done
    Steps ends;
    for (Node* node : graph::InOrder(graph)) {
      Steps after;
      for (const graph::Edge& edge : node->before) after.push_back(last.at(edge.node));
      last[node] = AddNode(*node, after.empty() ? entry : after);
      if (node->after.empty()) ends.push_back(last[node]);
    }
    return ends.empty() ? entry : ends;
  }
  std::shared_ptr<const GraphLayout> Finish() {
    out_->lanes.resize(std::max<size_t>(1, ends_.size()));
    for (uint32_t i = 0; i < out_->steps.size(); ++i) out_->lanes[out_->steps[i].lane].push_back(i);
    return std::move(out_);
  }

 private:
  // For each lane, how many of its steps are done before a step begins, with the step itself.
  using Clock = std::array<uint32_t, kMaxLanes>;

  uint32_t AddNode(const Node& node, const Steps& after) {
    const uint32_t step = AddStep(numbers_.at(&node), after);
    if (const auto* child = std::get_if<graph::ChildParams>(&node.params)) {
      // One step joins the branches, so that the edges of the child do not multiply.
      return AddStep(kNoNode, Add(*child->graph, {step}));
    }
    if (const auto* conditional = std::get_if<graph::ConditionalParams>(&node.params)) {
      for (const auto& body : conditional->bodies)
        out_->steps[step].bodies.push_back(LayOutGraph(*body, numbers_, 1));
    }
    return step;
  }

  uint32_t AddStep(uint32_t node, const Steps& after) {
    const auto number = static_cast<uint32_t>(out_->steps.size());
    Clock clock{};
    for (const uint32_t earlier : after) {
      for (uint32_t lane = 0; lane < kMaxLanes; ++lane)
        clock[lane] = std::max(clock[lane], clocks_[earlier][lane]);
    }
    GraphLayout::Step step;
    step.node = node;
    step.lane = ChooseLane(clock, number);
    for (const uint32_t earlier : after) {
      if (out_->steps[earlier].lane != step.lane) step.after.push_back(earlier);
    }
    // The lane's earlier steps are done too.
    if (ends_[step.lane] != kNoNode) {
      const Clock& before = clocks_[ends_[step.lane]];
      for (uint32_t lane = 0; lane < kMaxLanes; ++lane)
        clock[lane] = std::max(clock[lane], before[lane]);
    }
    ++clock[step.lane];
    ends_[step.lane] = number;
    clocks_.push_back(clock);
    out_->steps.push_back(std::move(step));
    return number;
  }

  // A lane whose steps all come before this one; else a new lane; else any lane.
  uint32_t ChooseLane(const Clock& clock, uint32_t number) {
    for (uint32_t lane = 0; lane < ends_.size(); ++lane) {
      if (clock[lane] == clocks_[ends_[lane]][lane]) return lane;
    }
    if (ends_.size() < most_lanes_) {
      ends_.push_back(kNoNode);
      return static_cast<uint32_t>(ends_.size() - 1);
    }
    return number % most_lanes_;
  }

  const Numbers& numbers_;
  const uint32_t most_lanes_;
  std::shared_ptr<GraphLayout> out_ = std::make_shared<GraphLayout>();
  std::vector<Clock> clocks_;  // by step
  Steps ends_;                 // the last step of each lane
};

std::shared_ptr<const GraphLayout> LayOutGraph(const Graph& graph, const Numbers& numbers,
                                               uint32_t most_lanes) {
  Builder builder(numbers, most_lanes);
  builder.Add(graph, {});
  return builder.Finish();
}

}  // namespace

std::shared_ptr<const GraphLayout> LayOut(const graph::Instance& instance) {
  Numbers numbers;
  for (uint32_t i = 0; i < instance.nodes.size(); ++i) numbers[instance.nodes[i].node] = i;
  return LayOutGraph(*instance.graph, numbers, kMaxLanes);
}

}  // namespace rgpu::emu
