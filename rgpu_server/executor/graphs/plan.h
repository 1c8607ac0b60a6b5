// In which order the nodes of a graph run, as far as the worker decides it.
//
// A node that waits for the client (a host function, a copy with a host side, or a graph inside
// that has one) becomes a *barrier*: all nodes of the graph come before it or after it. So while
// the graph waits for the client, none of its work is on the device, and the gate can give the
// device to another lease. A graph without such nodes keeps its own edges.
//
// A node that waits for a value in memory (cuStreamWaitValue32) becomes a barrier too, with a halt
// before and behind it, if the waits of the graph are *in line*: each comes before or behind each
// other one by the graph's own edges. All that does not come behind such a node comes before it,
// because it may write the value. Two waits that are not in line keep their edges, and the graph
// has no halts for them: an order of ours could let one wait for what only comes behind the other.
#pragma once

#include <cstdint>
#include <vector>

#include "rgpu_common/native/wire/graph_definition.h"

namespace rgpu::exec {

// True if the node, or a node of the graphs inside it, waits for the client.
bool WaitsForClient(const wire::GraphNode& node);
// True if the node, or a node of the graphs inside it, waits for a value in memory.
bool WaitsForValue(const wire::GraphNode& node);
bool AnyWaitsForValue(const wire::GraphDefinition& graph);
// True if the waits for values in the graph, and in those inside it, are in line.
bool ValuesInLine(const wire::GraphDefinition& graph);

struct GraphPlan {
  std::vector<uint32_t> order;         // places of the nodes, each behind those it depends on
  std::vector<wire::GraphEdge> edges;  // the graph's own, and those of its barriers
  std::vector<uint32_t> halted;        // places of the nodes that have a halt on both sides

  bool operator==(const GraphPlan&) const = default;
};

// False: the edges form a cycle, or two of them join the same nodes in the same way. `halts`: the
// nodes that wait for values become barriers.
bool PlanGraph(const wire::GraphDefinition& graph, GraphPlan* plan, bool halts = false);

}  // namespace rgpu::exec
