// The definition of a graph on the wire: what the client sends to instantiate or update a graph.
//
// A definition has the nodes of a graph with their parameters, and its edges. A child node and a
// conditional node have graphs of their own inside. A node's *number* is its place in the whole
// definition: the nodes of a graph are numbered in their order, and the nodes of the graphs inside
// a node directly follow that node.
//
// Host memory and host functions are in the client, so they have no address here: the worker asks
// for them by the node's number while the graph runs.
#pragma once

#include <array>
#include <cstdint>
#include <variant>
#include <vector>

#include "rgpu_common/native/wire/codec.h"

namespace rgpu::wire {

// The limits of one definition; the graphs inside count.
inline constexpr uint32_t kMaxGraphNodes = 64U << 10;
inline constexpr uint32_t kMaxGraphEdges = 1U << 20;
inline constexpr uint32_t kMaxGraphDepth = 16;         // 1: a graph without graphs inside
inline constexpr uint32_t kMaxGraphBodies = 256;       // of one conditional node
inline constexpr uint32_t kMaxMemoryOperations = 256;  // of one node
inline constexpr uint64_t kMaxDefinitionBytes = 64U << 20;

// One of `function` and `kernel` is 0.
struct GraphKernel {
  uint64_t function = 0;
  uint64_t kernel = 0;
  uint32_t context = 0;  // 0: that of the function, or of the graph
  std::array<uint32_t, 3> grid{};
  std::array<uint32_t, 3> block{};
  uint32_t shared_bytes = 0;
  bool cooperative = false;
  ByteView parameters;
};

// One side of a copy: in the client's memory,
struct GraphHostSide {};
// in linear memory of the device, with rows `pitch` bytes apart and slices `rows` rows apart,
struct GraphLinearSide {
  uint64_t address = 0;
  uint64_t pitch = 0;
  uint64_t rows = 0;
};
// or in an array, where it begins at byte `x` of row `y` of slice `z`.
struct GraphArraySide {
  uint64_t array = 0;
  uint64_t x = 0;
  uint64_t y = 0;
  uint64_t z = 0;
};

// The order of the alternatives is the number of the kind on the wire: it never changes.
using GraphSide = std::variant<GraphHostSide, GraphLinearSide, GraphArraySide>;

inline bool IsHost(const GraphSide& side) { return std::holds_alternative<GraphHostSide>(side); }

// `depth` slices of `height` rows of `width` bytes. At most one side is in host memory.
struct GraphCopy {
  uint32_t context = 0;
  GraphSide to;
  GraphSide from;
  uint64_t width = 0;
  uint64_t height = 1;
  uint64_t depth = 1;

  bool has_host_side() const { return IsHost(to) || IsHost(from); }
};

// `width` counts elements of `element_bytes` (1, 2, 4).
struct GraphSet {
  uint32_t context = 0;
  uint64_t to = 0;
  uint64_t pitch = 0;
  uint32_t element_bytes = 1;
  uint32_t value = 0;
  uint64_t width = 0;
  uint64_t height = 1;
};

struct GraphEmpty {};
struct GraphHostFunction {};
struct GraphEventRecord {
  uint64_t event = 0;
};
struct GraphEventWait {
  uint64_t event = 0;
};

// One operation of a batch. `operation` is a CUstreamBatchMemOpType; a barrier has no address.
struct GraphMemoryOperation {
  uint32_t operation = 0;
  uint32_t flags = 0;
  uint64_t address = 0;
  uint64_t value = 0;
};
struct GraphMemoryOperations {
  uint32_t context = 0;
  std::vector<GraphMemoryOperation> operations;
};

struct GraphEdge {
  uint32_t from = 0;  // places in the graph's own list of nodes
  uint32_t to = 0;
  uint8_t from_port = 0;
  uint8_t to_port = 0;
  uint8_t type = 0;

  bool operator==(const GraphEdge&) const = default;
};

struct GraphNode;
struct GraphDefinition {
  std::vector<GraphNode> nodes;
  std::vector<GraphEdge> edges;
};

struct GraphChild {
  GraphDefinition graph;
};
struct GraphConditional {
  uint32_t context = 0;
  uint64_t handle = 0;
  uint32_t type = 0;  // a CUgraphConditionalNodeType
  std::vector<GraphDefinition> bodies;
};

// The order of the alternatives is the number of the kind on the wire: it never changes.
using GraphParameters =
    std::variant<GraphEmpty, GraphKernel, GraphCopy, GraphSet, GraphHostFunction, GraphEventRecord,
                 GraphEventWait, GraphMemoryOperations, GraphChild, GraphConditional>;

struct GraphNode {
  uint32_t number = 0;  // in the whole definition; set by Decode and Number
  bool enabled = true;
  GraphParameters parameters;
};

// Numbers all nodes. Returns how many there are.
uint32_t Number(GraphDefinition* definition);

void Encode(const GraphDefinition& definition, std::vector<uint8_t>* out);
// False: the bytes are no definition, or it exceeds a limit. Kernel parameters point into `bytes`.
bool Decode(ByteView bytes, GraphDefinition* definition);

// One node without graphs inside, for a change of its parameters.
void EncodeNode(const GraphNode& node, std::vector<uint8_t>* out);
bool DecodeNode(ByteView bytes, GraphNode* node);

// Calls visit(node) for each node of the definition, in the order of their numbers.
template <typename Definition, typename Visit>
void ForEachNode(Definition& definition, Visit&& visit) {
  for (auto& node : definition.nodes) {
    visit(node);
    if (auto* child = std::get_if<GraphChild>(&node.parameters)) ForEachNode(child->graph, visit);
    if (auto* conditional = std::get_if<GraphConditional>(&node.parameters)) {
      for (auto& body : conditional->bodies) ForEachNode(body, visit);
    }
  }
}

}  // namespace rgpu::wire
