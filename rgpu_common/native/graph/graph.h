// A graph: nodes and edges. It is a template, which the device never sees.
//
// A Graph has no lock. The model's lock guards every graph that has a handle. An executable guards
// its own copy.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "rgpu_common/native/graph/params.h"
#include "rgpu_common/native/graph/user_object.h"

namespace rgpu::graph {

struct Node;

struct Edge {
  Node* node = nullptr;  // the other end
  CUgraphEdgeData data{};
};

struct Node {
  uint64_t handle = 0;    // 0 in the copy of an executable
  uint64_t original = 0;  // the handle of the node of which this one is a copy, or 0
  Graph* graph = nullptr;
  Params params;
  std::vector<Edge> before;  // what it depends on, in the order in which the edges were added
  std::vector<Edge> after;

  CUgraphNodeType type() const { return TypeOf(params); }
};

// True if the edge is the usual kind: full completion of the first node.
bool IsPlain(const CUgraphEdgeData& data);
bool SameEdge(const CUgraphEdgeData& a, const CUgraphEdgeData& b);

// One value that conditional nodes read and kernels set.
struct ConditionalHandle {
  CUgraphConditionalHandle value = 0;
  CUcontext context = nullptr;
  uint32_t initial = 0;
  bool assigns = false;  // each launch begins with `initial`
  // Gives the value back when the graph, and all copies and executables of it, are gone.
  std::shared_ptr<void> keep;
};

class Graph {
 public:
  Graph() = default;
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  uint64_t handle = 0;            // 0 in the copy of an executable
  uint64_t original = 0;          // the handle of the graph of which this one is a copy, or 0
  Node* owner = nullptr;          // the child or conditional node that this graph belongs to
  bool has_memory_nodes = false;  // ever: what that forbids holds for the life of the graph
  uint32_t executables = 0;       // that exist of it; counted only if it has memory nodes
  std::vector<ConditionalHandle> conditionals;
  UserReferences references;

  // In the order in which they were added.
  const std::vector<std::unique_ptr<Node>>& nodes() const { return nodes_; }
  uint64_t edge_count() const { return edges_; }

  // Adds a node. Every dependency is a node of this graph, and checked (CheckDependencies).
  Node* Add(Params params, const std::vector<Edge>& before);
  void Remove(Node* node);
  void Connect(Node* from, Node* to, const CUgraphEdgeData& data);
  // False if there is no such edge.
  bool Disconnect(Node* from, Node* to, const CUgraphEdgeData& data);
  static bool Connected(const Node& from, const Node& to, const CUgraphEdgeData& data);

 private:
  std::vector<std::unique_ptr<Node>> nodes_;
  uint64_t edges_ = 0;
};

// The graphs inside a node: its child graph, or the bodies of a conditional node.
std::vector<std::shared_ptr<Graph>> InsideOf(const Node& node);

// Checks the data of an edge that leaves `from` and enters a node of type `to`.
CUresult CheckEdge(const CUgraphEdgeData& data, CUgraphNodeType from, CUgraphNodeType to);

// What a graph contains, with everything inside its nodes.
struct Extent {
  uint64_t nodes = 0;
  uint64_t edges = 0;
  uint32_t depth = 0;  // 1: no graph inside
};
Extent ExtentOf(const Graph& graph);

// The nodes so that each comes after those that it depends on; among equals in the order in which
// they were added. Shorter than `graph.nodes()` if there is a cycle.
std::vector<Node*> InOrder(const Graph& graph);

// A copy with the copies of all child graphs and bodies. Each node and graph of the copy names its
// original. References to user objects are shared (each count once more).
std::shared_ptr<Graph> Clone(const Graph& graph);

}  // namespace rgpu::graph
