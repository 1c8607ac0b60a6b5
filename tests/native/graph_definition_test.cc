// The definition of a graph: round trips, and bytes of a hostile peer.
#include "rgpu_common/native/wire/graph_definition.h"

#include <string>

#include "tests/native/testing.h"

namespace rgpu::wire {
namespace {

const char kParameters[] = "parameters of a kernel";

GraphNode Node(GraphParameters parameters, bool enabled = true) {
  GraphNode node;
  node.enabled = enabled;
  node.parameters = std::move(parameters);
  return node;
}

GraphKernel Kernel() {
  GraphKernel kernel;
  kernel.function = 77;
  kernel.context = 10;
  kernel.grid = {1, 2, 3};
  kernel.block = {4, 5, 6};
  kernel.shared_bytes = 128;
  kernel.cooperative = true;
  kernel.parameters = Bytes(std::string_view(kParameters));
  return kernel;
}

// One node of every kind, and graphs inside.
GraphDefinition Everything() {
  GraphDefinition body;
  body.nodes.push_back(Node(Kernel()));
  body.nodes.push_back(Node(GraphEmpty{}));
  body.edges.push_back({0, 1, 1, 0, 1});
  GraphDefinition all;
  all.nodes.push_back(Node(GraphEmpty{}));
  all.nodes.push_back(Node(Kernel(), false));
  all.nodes.push_back(
      Node(GraphCopy{10, GraphLinearSide{4096, 512, 8}, GraphHostSide{}, 100, 2, 3}));
  all.nodes.push_back(Node(GraphSet{10, 4096, 512, 4, 7, 25, 2}));
  all.nodes.push_back(Node(GraphHostFunction{}));
  all.nodes.push_back(Node(GraphEventRecord{81}));
  all.nodes.push_back(Node(GraphEventWait{82}));
  all.nodes.push_back(Node(GraphMemoryOperations{10, {{1, 2, 4096, 9}, {6, 0, 0, 0}}}));
  all.nodes.push_back(Node(GraphChild{body}));
  all.nodes.push_back(Node(GraphConditional{10, 5, 2, {body, {}, body}}));
  all.nodes.push_back(
      Node(GraphCopy{10, GraphArraySide{91, 16, 3, 1}, GraphLinearSide{8192, 64, 4}, 8, 2, 3}));
  all.nodes.push_back(Node(GraphCopy{0, GraphHostSide{}, GraphArraySide{92, 0, 0, 0}, 4, 1, 1}));
  for (uint32_t i = 1; i < all.nodes.size(); ++i) all.edges.push_back({i - 1, i, 0, 0, 0});
  return all;
}

std::vector<uint8_t> Encoded(const GraphDefinition& definition) {
  std::vector<uint8_t> bytes;
  Encode(definition, &bytes);
  return bytes;
}

bool Decodes(const std::vector<uint8_t>& bytes, GraphDefinition* definition) {
  return Decode(Bytes(bytes.data(), bytes.size()), definition);
}

TEST(graphs, a_definition_comes_back_as_it_was) {
  const std::vector<uint8_t> bytes = Encoded(Everything());
  GraphDefinition back;
  CHECK(Decodes(bytes, &back));
  CHECK(Encoded(back) == bytes);
  const auto& kernel = std::get<GraphKernel>(back.nodes[1].parameters);
  CHECK_EQ(kernel.parameters.text(), kParameters);
  CHECK(!back.nodes[1].enabled && back.nodes[2].enabled);
  CHECK_EQ(std::get<GraphConditional>(back.nodes[9].parameters).bodies.size(), 3U);
  const auto& copy = std::get<GraphCopy>(back.nodes[10].parameters);
  const auto& array = std::get<GraphArraySide>(copy.to);
  CHECK(array.array == 91 && array.x == 16 && array.y == 3 && array.z == 1);
  const auto& linear = std::get<GraphLinearSide>(copy.from);
  CHECK(linear.address == 8192 && linear.pitch == 64 && linear.rows == 4 && copy.depth == 3);
  CHECK(!copy.has_host_side());
  CHECK(std::get<GraphCopy>(back.nodes[11].parameters).has_host_side());
}

TEST(graphs, nodes_are_numbered_through_the_graphs_inside) {
  GraphDefinition all = Everything();
  const std::vector<uint8_t> bytes = Encoded(all);
  GraphDefinition back;
  CHECK(Decodes(bytes, &back));
  CHECK_EQ(Number(&all), 18U);
  std::vector<uint32_t> decoded;
  std::vector<uint32_t> numbered;
  ForEachNode(back, [&](const GraphNode& node) { decoded.push_back(node.number); });
  ForEachNode(all, [&](const GraphNode& node) { numbered.push_back(node.number); });
  CHECK(decoded == numbered);
  CHECK_EQ(back.nodes[9].number, 11U);  // behind the child node 8 and its two nodes
}

TEST(graphs, no_part_of_a_definition_is_one) {
  const std::vector<uint8_t> bytes = Encoded(Everything());
  for (size_t size = 0; size < bytes.size(); ++size) {
    GraphDefinition back;
    CHECK(!Decodes({bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size)}, &back));
  }
  std::vector<uint8_t> longer = bytes;
  longer.push_back(0);
  GraphDefinition back;
  CHECK(!Decodes(longer, &back));
}

// A changed byte is refused, or is part of what comes back: nothing is ignored.
TEST(graphs, every_byte_matters) {
  const std::vector<uint8_t> bytes = Encoded(Everything());
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (const int flip : {1, 0x80, 0xff}) {
      std::vector<uint8_t> changed = bytes;
      changed[at] = static_cast<uint8_t>(changed[at] ^ flip);
      GraphDefinition back;
      if (Decodes(changed, &back)) CHECK(Encoded(back) == changed);
    }
  }
}

TEST(graphs, limits_hold) {
  GraphDefinition many;
  many.nodes.resize(kMaxGraphNodes);
  GraphDefinition back;
  CHECK(Decodes(Encoded(many), &back));
  many.nodes.emplace_back();
  CHECK(!Decodes(Encoded(many), &back));

  GraphDefinition deep;
  for (uint32_t depth = 1; depth < kMaxGraphDepth; ++depth) {
    GraphDefinition outer;
    outer.nodes.push_back(Node(GraphChild{deep}));
    deep = outer;
  }
  back = {};
  CHECK(Decodes(Encoded(deep), &back));
  GraphDefinition deeper;
  deeper.nodes.push_back(Node(GraphChild{deep}));
  CHECK(!Decodes(Encoded(deeper), &back));

  GraphDefinition bodies;
  bodies.nodes.push_back(
      Node(GraphConditional{0, 1, 2, std::vector<GraphDefinition>(kMaxGraphBodies + 1)}));
  CHECK(!Decodes(Encoded(bodies), &back));

  GraphDefinition operations;
  operations.nodes.push_back(
      Node(GraphMemoryOperations{0, std::vector<GraphMemoryOperation>(kMaxMemoryOperations + 1)}));
  CHECK(!Decodes(Encoded(operations), &back));
}

TEST(graphs, edges_join_two_nodes_of_the_graph) {
  for (const GraphEdge& edge :
       {GraphEdge{0, 2, 0, 0, 0}, GraphEdge{2, 0, 0, 0, 0}, GraphEdge{1, 1, 0, 0, 0}}) {
    GraphDefinition graph;
    graph.nodes.resize(2);
    graph.edges.push_back(edge);
    GraphDefinition back;
    CHECK(!Decodes(Encoded(graph), &back));
  }
}

TEST(graphs, at_most_one_side_of_a_copy_is_in_the_client) {
  GraphDefinition graph;
  graph.nodes.push_back(Node(GraphCopy{0, GraphHostSide{}, GraphHostSide{}, 1, 1, 1}));
  GraphDefinition back;
  CHECK(!Decodes(Encoded(graph), &back));
}

TEST(graphs, a_side_of_an_unknown_kind_is_refused) {
  GraphDefinition graph;
  graph.nodes.push_back(Node(GraphCopy{0, GraphLinearSide{}, GraphLinearSide{}, 1, 1, 1}));
  std::vector<uint8_t> bytes = Encoded(graph);
  const size_t kind_of_target = 4 + 4 + 2 + 4;  // behind the magic, the count, the head, a context
  CHECK_EQ(bytes[kind_of_target], 1);
  for (const int kind : {3, 4, 255}) {
    bytes[kind_of_target] = static_cast<uint8_t>(kind);
    GraphDefinition back;
    CHECK(!Decodes(bytes, &back));
  }
}

TEST(graphs, a_single_node_has_no_graphs_inside) {
  for (const GraphNode& node : Everything().nodes) {
    std::vector<uint8_t> bytes;
    EncodeNode(node, &bytes);
    GraphNode back;
    const bool plain = !std::holds_alternative<GraphChild>(node.parameters) &&
                       !std::holds_alternative<GraphConditional>(node.parameters);
    CHECK_EQ(DecodeNode(Bytes(bytes.data(), bytes.size()), &back), plain);
    for (size_t size = 0; size < bytes.size(); ++size) {
      CHECK(!DecodeNode(Bytes(bytes.data(), size), &back));
    }
  }
}

}  // namespace
}  // namespace rgpu::wire
