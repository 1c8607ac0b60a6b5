// How the launches of a graph run: its nodes as steps, in an order that fits the edges, on lanes
// that may run at the same time. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "rgpu_common/native/graph/instance.h"

namespace rgpu::emu {

// The most lanes of a graph. Branches beyond that share lanes, in an order that fits the edges.
inline constexpr uint32_t kMaxLanes = 16;
// Of a step that is no node: it joins the branches of a child graph.
inline constexpr uint32_t kNoNode = UINT32_MAX;

struct GraphLayout {
  struct Step {
    uint32_t node = kNoNode;  // number in the instance
    uint32_t lane = 0;
    std::vector<uint32_t> after;  // earlier steps of other lanes
    // The bodies of a conditional node.
    std::vector<std::shared_ptr<const GraphLayout>> bodies;
  };

  std::vector<Step> steps;                   // each behind those that it depends on
  std::vector<std::vector<uint32_t>> lanes;  // the steps of each lane, in order; at least one lane
};

// Child graphs are part of the layout around them. A body is one lane.
std::shared_ptr<const GraphLayout> LayOut(const graph::Instance& instance);

}  // namespace rgpu::emu
