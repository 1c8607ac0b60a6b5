// In which order the nodes of a graph run, as far as the worker decides it.
//
// A node that waits for the client (a host function, a copy with a host side, or a graph inside
// that has one) becomes a *barrier*: all nodes of the graph come before it or after it. So while
// the graph waits for the client, none of its work is on the device, and the gate can give the
// device to another lease. A graph without such nodes keeps its own edges.
#pragma once

#include <cstdint>
#include <vector>

#include "rgpu_common/native/wire/graph_definition.h"

namespace rgpu::exec {

// True if the node, or a node of the graphs inside it, waits for the client.
bool WaitsForClient(const wire::GraphNode& node);

struct GraphPlan {
  std::vector<uint32_t> order;         // places of the nodes, each behind those it depends on
  std::vector<wire::GraphEdge> edges;  // the graph's own, and those of its barriers

  bool operator==(const GraphPlan&) const = default;
};

// False: the edges form a cycle, or two of them join the same nodes in the same way.
bool PlanGraph(const wire::GraphDefinition& graph, GraphPlan* plan);

}  // namespace rgpu::exec
