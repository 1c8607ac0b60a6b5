#include "rgpu_common/native/wire/graph_definition.h"

#include <utility>

namespace rgpu::wire {
namespace {

constexpr uint32_t kGraphMagic = 0x32465247;  // "GRF2": the form of a definition

// ---- Encoding.

void PutPart(Writer& w, const GraphDefinition& graph);

void PutPart(Writer&, const GraphEmpty&) {}
void PutPart(Writer&, const GraphHostFunction&) {}
void PutPart(Writer& w, const GraphEventRecord& record) { w.Put(record.event); }
void PutPart(Writer& w, const GraphEventWait& wait) { w.Put(wait.event); }

void PutPart(Writer& w, const GraphKernel& kernel) {
  w.Put(kernel.function);
  w.Put(kernel.kernel);
  w.Put(kernel.context);
  for (const uint32_t size : kernel.grid) w.Put(size);
  for (const uint32_t size : kernel.block) w.Put(size);
  w.Put(kernel.shared_bytes);
  w.Put(static_cast<uint8_t>(kernel.cooperative));
  w.Put(kernel.parameters);
}

void PutPart(Writer&, const GraphHostSide&) {}

void PutPart(Writer& w, const GraphLinearSide& side) {
  w.Put(side.address);
  w.Put(side.pitch);
  w.Put(side.rows);
}

void PutPart(Writer& w, const GraphArraySide& side) {
  w.Put(side.array);
  w.Put(side.x);
  w.Put(side.y);
  w.Put(side.z);
}

void PutPart(Writer& w, const GraphSide& side) {
  w.Put(static_cast<uint8_t>(side.index()));
  std::visit([&](const auto& part) { PutPart(w, part); }, side);
}

void PutPart(Writer& w, const GraphCopy& copy) {
  w.Put(copy.context);
  PutPart(w, copy.to);
  PutPart(w, copy.from);
  w.Put(copy.width);
  w.Put(copy.height);
  w.Put(copy.depth);
}

void PutPart(Writer& w, const GraphSet& set) {
  w.Put(set.context);
  w.Put(set.to);
  w.Put(set.pitch);
  w.Put(set.element_bytes);
  w.Put(set.value);
  w.Put(set.width);
  w.Put(set.height);
}

void PutPart(Writer& w, const GraphMemoryOperations& batch) {
  w.Put(batch.context);
  w.Put(static_cast<uint32_t>(batch.operations.size()));
  for (const GraphMemoryOperation& one : batch.operations) {
    w.Put(one.operation);
    w.Put(one.flags);
    w.Put(one.address);
    w.Put(one.value);
  }
}

void PutPart(Writer& w, const GraphChild& child) { PutPart(w, child.graph); }

void PutPart(Writer& w, const GraphConditional& conditional) {
  w.Put(conditional.context);
  w.Put(conditional.handle);
  w.Put(conditional.type);
  w.Put(static_cast<uint32_t>(conditional.bodies.size()));
  for (const GraphDefinition& body : conditional.bodies) PutPart(w, body);
}

void PutNode(Writer& w, const GraphNode& node) {
  w.Put(static_cast<uint8_t>(node.parameters.index()));
  w.Put(static_cast<uint8_t>(node.enabled));
  std::visit([&](const auto& part) { PutPart(w, part); }, node.parameters);
}

void PutPart(Writer& w, const GraphDefinition& graph) {
  w.Put(static_cast<uint32_t>(graph.nodes.size()));
  for (const GraphNode& node : graph.nodes) PutNode(w, node);
  w.Put(static_cast<uint32_t>(graph.edges.size()));
  for (const GraphEdge& edge : graph.edges) {
    w.Put(edge.from);
    w.Put(edge.to);
    w.Put(edge.from_port);
    w.Put(edge.to_port);
    w.Put(edge.type);
  }
}

// ---- Decoding. A failed read gives zeros and makes the reader fail for good.

class Decoder {
 public:
  explicit Decoder(ByteView bytes) : reader_(bytes.data, bytes.size) {}

  bool Whole(GraphDefinition* definition) {
    uint32_t magic = 0;
    reader_.Get(&magic);
    return magic == kGraphMagic && Graph(definition, 1) && reader_.done();
  }
  // `depth` 0: graphs inside the node are refused.
  bool Node(GraphNode* node, uint32_t depth);
  bool done() const { return reader_.done(); }

 private:
  bool Graph(GraphDefinition* graph, uint32_t depth);
  bool Edge(const GraphDefinition& graph, GraphEdge* edge);
  // False: neither 0 nor 1.
  bool Bool(bool* value) {
    uint8_t byte = 0;
    reader_.Get(&byte);
    *value = byte == 1;
    return byte <= 1;
  }
  template <typename... T>
  bool All(T*... values) {
    (reader_.Get(values), ...);
    return reader_.ok();
  }

  bool Part(GraphEmpty*, uint32_t) { return true; }
  bool Part(GraphHostFunction*, uint32_t) { return true; }
  bool Part(GraphEventRecord* record, uint32_t) { return All(&record->event); }
  bool Part(GraphEventWait* wait, uint32_t) { return All(&wait->event); }
  bool Part(GraphKernel* kernel, uint32_t);
  bool Part(GraphHostSide*, uint32_t) { return true; }
  bool Part(GraphLinearSide* side, uint32_t) {
    return All(&side->address, &side->pitch, &side->rows);
  }
  bool Part(GraphArraySide* side, uint32_t) {
    return All(&side->array, &side->x, &side->y, &side->z);
  }
  bool Part(GraphCopy* copy, uint32_t);
  bool Part(GraphSet* set, uint32_t);
  bool Part(GraphMemoryOperations* batch, uint32_t);
  bool Part(GraphChild* child, uint32_t depth);
  bool Part(GraphConditional* conditional, uint32_t depth);
  // One byte, the number of an alternative, and then that alternative.
  template <typename Variant>
  bool OneOf(Variant* variant, uint32_t depth) {
    uint8_t kind = 0;
    return All(&kind) && Alternative(kind, variant, depth);
  }
  template <size_t kKind = 0, typename Variant>
  bool Alternative(uint8_t kind, Variant* variant, uint32_t depth);

  Reader reader_;
  uint32_t nodes_ = 0;
  uint32_t edges_ = 0;
};

bool Decoder::Part(GraphKernel* kernel, uint32_t) {
  All(&kernel->function, &kernel->kernel, &kernel->context);
  for (uint32_t& size : kernel->grid) reader_.Get(&size);
  for (uint32_t& size : kernel->block) reader_.Get(&size);
  reader_.Get(&kernel->shared_bytes);
  return Bool(&kernel->cooperative) && All(&kernel->parameters);
}

bool Decoder::Part(GraphCopy* copy, uint32_t depth) {
  return All(&copy->context) && OneOf(&copy->to, depth) && OneOf(&copy->from, depth) &&
         All(&copy->width, &copy->height, &copy->depth) &&
         !(IsHost(copy->to) && IsHost(copy->from));
}

bool Decoder::Part(GraphSet* set, uint32_t) {
  return All(&set->context, &set->to, &set->pitch, &set->element_bytes, &set->value, &set->width,
             &set->height);
}

bool Decoder::Part(GraphMemoryOperations* batch, uint32_t) {
  uint32_t count = 0;
  if (!All(&batch->context, &count) || count > kMaxMemoryOperations) return false;
  batch->operations.resize(count);
  for (GraphMemoryOperation& one : batch->operations) {
    if (!All(&one.operation, &one.flags, &one.address, &one.value)) return false;
  }
  return true;
}

bool Decoder::Part(GraphChild* child, uint32_t depth) {
  return depth != 0 && Graph(&child->graph, depth + 1);
}

bool Decoder::Part(GraphConditional* conditional, uint32_t depth) {
  uint32_t count = 0;
  if (depth == 0 || !All(&conditional->context, &conditional->handle, &conditional->type, &count) ||
      count > kMaxGraphBodies) {
    return false;
  }
  for (uint32_t i = 0; i < count; ++i) {
    if (!Graph(&conditional->bodies.emplace_back(), depth + 1)) return false;
  }
  return true;
}

template <size_t kKind, typename Variant>
bool Decoder::Alternative(uint8_t kind, Variant* variant, uint32_t depth) {
  if constexpr (kKind == std::variant_size_v<Variant>) {
    return false;
  } else {
    if (kind == kKind) return Part(&variant->template emplace<kKind>(), depth);
    return Alternative<kKind + 1>(kind, variant, depth);
  }
}

bool Decoder::Node(GraphNode* node, uint32_t depth) {
  uint8_t kind = 0;
  node->number = nodes_++;
  reader_.Get(&kind);
  return Bool(&node->enabled) && Alternative(kind, &node->parameters, depth) && reader_.ok();
}

bool Decoder::Edge(const GraphDefinition& graph, GraphEdge* edge) {
  const size_t count = graph.nodes.size();
  return All(&edge->from, &edge->to, &edge->from_port, &edge->to_port, &edge->type) &&
         edge->from < count && edge->to < count && edge->from != edge->to;
}

// A count is believed only as far as the elements arrive, so a short message never reserves much.
bool Decoder::Graph(GraphDefinition* graph, uint32_t depth) {
  uint32_t count = 0;
  if (depth > kMaxGraphDepth || !All(&count)) return false;
  for (uint32_t i = 0; i < count; ++i) {
    if (nodes_ == kMaxGraphNodes || !Node(&graph->nodes.emplace_back(), depth)) return false;
  }
  if (!All(&count)) return false;
  for (uint32_t i = 0; i < count; ++i) {
    if (edges_++ == kMaxGraphEdges || !Edge(*graph, &graph->edges.emplace_back())) return false;
  }
  return true;
}

}  // namespace

uint32_t Number(GraphDefinition* definition) {
  uint32_t next = 0;
  ForEachNode(*definition, [&](GraphNode& node) { node.number = next++; });
  return next;
}

void Encode(const GraphDefinition& definition, std::vector<uint8_t>* out) {
  Writer w(out);
  w.Put(kGraphMagic);
  PutPart(w, definition);
}

bool Decode(ByteView bytes, GraphDefinition* definition) {
  return bytes.size <= kMaxDefinitionBytes && Decoder(bytes).Whole(definition);
}

void EncodeNode(const GraphNode& node, std::vector<uint8_t>* out) {
  Writer w(out);
  PutNode(w, node);
}

bool DecodeNode(ByteView bytes, GraphNode* node) {
  Decoder decoder(bytes);
  return decoder.Node(node, 0) && decoder.done();
}

}  // namespace rgpu::wire
