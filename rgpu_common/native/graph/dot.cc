#include "rgpu_common/native/graph/dot.h"

#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <unordered_map>

namespace rgpu::graph {
namespace {

__attribute__((format(printf, 1, 2))) std::string Format(const char* format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  return text;
}

const char* NameOf(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return "KERNEL";
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return "MEMCPY";
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return "MEMSET";
    case CU_GRAPH_NODE_TYPE_HOST:
      return "HOST";
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return "GRAPH";
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return "EMPTY";
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return "WAIT_EVENT";
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return "EVENT_RECORD";
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return "MEM_ALLOC";
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return "MEM_FREE";
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return "BATCH_MEM_OP";
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return "CONDITIONAL";
    default:
      return "?";
  }
}

const char* NameOf(CUgraphConditionalNodeType type) {
  return type == CU_GRAPH_COND_TYPE_WHILE    ? "WHILE"
         : type == CU_GRAPH_COND_TYPE_SWITCH ? "SWITCH"
                                             : "IF";
}

// The lines about the parameters of a node, each for one flag.
class Describe {
 public:
  explicit Describe(unsigned flags) : flags_(flags) {}

  std::string operator()(const KernelParams& kernel) const {
    std::string out;
    if (Has(CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS)) {
      out += Format("\\ngrid (%u, %u, %u), block (%u, %u, %u), shared %u", kernel.grid[0],
                    kernel.grid[1], kernel.grid[2], kernel.block[0], kernel.block[1],
                    kernel.block[2], kernel.shared_bytes);
    }
    if (Has(CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_ATTRIBUTES)) {
      for (const auto& [id, value] : kernel.attributes)
        out += Format("\\nattribute %d", static_cast<int>(id));
    }
    return out;
  }
  std::string operator()(const CopyParams& copy) const {
    if (!Has(CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS)) return {};
    return Format("\\n%zu x %zu x %zu bytes, memory type %d to %d", copy.copy.WidthInBytes,
                  copy.copy.Height, copy.copy.Depth, static_cast<int>(copy.copy.srcMemoryType),
                  static_cast<int>(copy.copy.dstMemoryType));
  }
  std::string operator()(const SetParams& set) const {
    if (!Has(CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS)) return {};
    return Format("\\n0x%llx: %zu x %zu elements of %u bytes, value %u", set.set.dst, set.set.width,
                  set.set.height, set.set.elementSize, set.set.value);
  }
  std::string operator()(const HostParams& host) const {
    if (!Has(CU_GRAPH_DEBUG_DOT_FLAGS_HOST_NODE_PARAMS)) return {};
    return Format("\\nfunction %p, data %p", reinterpret_cast<void*>(host.function), host.data);
  }
  std::string operator()(const RecordParams& record) const { return Event(record.event); }
  std::string operator()(const WaitParams& wait) const { return Event(wait.event); }
  std::string operator()(const BatchParams& batch) const {
    if (!Has(CU_GRAPH_DEBUG_DOT_FLAGS_BATCH_MEM_OP_NODE_PARAMS)) return {};
    return Format("\\n%zu operations", batch.operations.size());
  }
  std::string operator()(const AllocParams& alloc) const {
    if (!Has(CU_GRAPH_DEBUG_DOT_FLAGS_MEM_ALLOC_NODE_PARAMS)) return {};
    return Format("\\n0x%llx: %zu bytes", alloc.allocation->address, alloc.bytes);
  }
  std::string operator()(const FreeParams& free) const {
    if (!Has(CU_GRAPH_DEBUG_DOT_FLAGS_MEM_FREE_NODE_PARAMS)) return {};
    return Format("\\n0x%llx", free.address);
  }
  std::string operator()(const ConditionalParams& conditional) const {
    if (!Has(CU_GRAPH_DEBUG_DOT_FLAGS_CONDITIONAL_NODE_PARAMS)) return {};
    return Format("\\n%s, handle 0x%" PRIx64 ", %zu bodies", NameOf(conditional.type),
                  static_cast<uint64_t>(conditional.handle), conditional.bodies.size());
  }
  std::string operator()(const auto&) const { return {}; }

  bool Has(unsigned flag) const {
    return (flags_ & (flag | CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE)) != 0;
  }

 private:
  std::string Event(CUevent event) const {
    if (!Has(CU_GRAPH_DEBUG_DOT_FLAGS_EVENT_NODE_PARAMS)) return {};
    return Format("\\nevent %p", reinterpret_cast<void*>(event));
  }

  const unsigned flags_;
};

// Writes a graph as a cluster, and the graphs inside of its nodes as clusters after it.
void Write(const Graph& graph, const std::string& name, const Describe& describe,
           std::string* out) {
  *out += "subgraph cluster_" + name + " {\nlabel=\"" + name + "\"\n";
  std::unordered_map<const Node*, std::string> names;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = *graph.nodes()[i];
    names[&node] = name + "_node_" + std::to_string(i);
    std::string label = Format("%zu\\n%s", i, NameOf(node.type()));
    label += std::visit(describe, node.params);
    if (describe.Has(CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES))
      label += Format("\\n0x%" PRIx64, node.handle);
    *out += '"' + names[&node] + "\" [shape=\"box\" label=\"" + label + "\"]\n";
  }
  for (const auto& node : graph.nodes()) {
    for (const Edge& edge : node->after) {
      *out += '"' + names[node.get()] + "\" -> \"" + names[edge.node] + '"';
      if (!IsPlain(edge.data))
        *out += Format(" [label=\"port %u, type %u\"]", edge.data.from_port, edge.data.type);
      *out += '\n';
    }
  }
  *out += "}\n";
  for (const auto& node : graph.nodes()) {
    const auto inside = InsideOf(*node);
    for (size_t i = 0; i < inside.size(); ++i) {
      const std::string inner = names[node.get()] + "_graph_" + std::to_string(i);
      Write(*inside[i], inner, describe, out);
    }
  }
}

}  // namespace

std::string DotText(const Graph& graph, unsigned flags) {
  std::string out = "digraph dot {\n";
  Write(graph, "graph_0", Describe(flags), &out);
  return out + "}\n";
}

}  // namespace rgpu::graph
