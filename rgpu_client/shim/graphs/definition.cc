#include "rgpu_client/shim/graphs/definition.h"

#include <unordered_map>

#include "rgpu_client/shim/calls/box_sides.h"
#include "rgpu_client/shim/calls/functions.h"
#include "rgpu_client/shim/calls/pinned_params.h"

namespace rgpu::shim {
namespace {

uint32_t ContextId(CUcontext context) { return static_cast<uint32_t>(HandleValue(context)); }

wire::GraphSide WireSide(const Side& side) {
  if (!side.device) return wire::GraphHostSide{};
  if (side.array != 0) return wire::GraphArraySide{side.array, side.x, side.y, side.z};
  return wire::GraphLinearSide{side.address, side.pitch, side.rows};
}

// Turns the parameters of one node into those of the wire.
class Writer {
 public:
  Writer(const Here& here, const graph::Instance& instance, ChangedParams* changed)
      : here_(here), instance_(instance), changed_(*changed) {}

  CUresult Graph(const graph::Graph& graph, wire::GraphDefinition* out);
  CUresult Node(const graph::Node& node, wire::GraphNode* out) {
    out->number = number_++;
    out->enabled = instance_.nodes[out->number].enabled;
    return std::visit([&](const auto& params) { return Put(params, &out->parameters); },
                      node.params);
  }
  void StartAt(uint32_t number) { number_ = number; }

 private:
  using Out = wire::GraphParameters;

  CUresult Put(const graph::KernelParams& kernel, Out* out) const;
  CUresult Put(const graph::CopyParams& params, Out* out) const;
  CUresult Put(const graph::SetParams& set, Out* out) const;
  CUresult Put(const graph::BatchParams& batch, Out* out) const;
  CUresult Put(const graph::ChildParams& child, Out* out);
  CUresult Put(const graph::ConditionalParams& conditional, Out* out);
  CUresult Put(const graph::HostParams&, Out* out) const {
    *out = wire::GraphHostFunction{};
    return CUDA_SUCCESS;
  }
  CUresult Put(const graph::RecordParams& record, Out* out) const {
    *out = wire::GraphEventRecord{HandleValue(record.event)};
    return CUDA_SUCCESS;
  }
  CUresult Put(const graph::WaitParams& wait, Out* out) const {
    *out = wire::GraphEventWait{HandleValue(wait.event)};
    return CUDA_SUCCESS;
  }
  // Memory of alloc nodes exists as long as the graph, so its nodes only keep their places.
  CUresult Put(const graph::AllocParams&, Out*) const { return CUDA_SUCCESS; }
  CUresult Put(const graph::FreeParams&, Out*) const { return CUDA_SUCCESS; }
  CUresult Put(const graph::EmptyParams&, Out*) const { return CUDA_SUCCESS; }

  const Here& here_;
  const graph::Instance& instance_;
  ChangedParams& changed_;
  uint32_t number_ = 0;
};

CUresult Writer::Put(const graph::KernelParams& kernel, Out* out) const {
  const Function* function =
      kernel.function != nullptr ? FindFunction(kernel.function) : FindFunction(kernel.kernel);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  auto& put = out->emplace<wire::GraphKernel>();
  put.function = FunctionOperand(*function);
  put.kernel = KernelOperand(*function);
  put.context = ContextId(kernel.context);
  for (size_t i = 0; i < 3; ++i) {
    put.grid[i] = kernel.grid[i];
    put.block[i] = kernel.block[i];
  }
  put.shared_bytes = kernel.shared_bytes;
  const auto* cooperative =
      graph::FindAttribute(kernel.attributes, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
  put.cooperative = cooperative != nullptr && cooperative->cooperative != 0;
  // The node itself keeps the addresses that the program gave.
  PackedParams packed{kernel.bytes.data(), static_cast<uint32_t>(kernel.bytes.size())};
  std::vector<uint8_t> buffer;
  const CUresult status = UseImages(here_, &buffer, &packed);
  if (status != CUDA_SUCCESS) return status;
  if (packed.data == buffer.data()) packed.data = changed_.emplace_back(std::move(buffer)).data();
  put.parameters = wire::Bytes(packed.data, packed.bytes);
  return CUDA_SUCCESS;
}

CUresult Writer::Put(const graph::CopyParams& params, Out* out) const {
  Copy copy;
  const CUresult status = CopyOfNode(here_, params.copy, &copy);
  if (status != CUDA_SUCCESS) return status;
  if (!copy.to.device && !copy.from.device) {  // this process copies, as a host function
    *out = wire::GraphHostFunction{};
    return CUDA_SUCCESS;
  }
  *out = wire::GraphCopy{ContextId(params.context),
                         WireSide(copy.to),
                         WireSide(copy.from),
                         copy.width,
                         copy.height,
                         copy.depth};
  return CUDA_SUCCESS;
}

CUresult Writer::Put(const graph::SetParams& set, Out* out) const {
  const auto& from = set.set;
  uint64_t to = from.dst;
  if (const CUresult status = UseImage(here_, &to); status != CUDA_SUCCESS) return status;
  *out = wire::GraphSet{ContextId(from.ctx), to,         from.pitch, from.elementSize,
                        from.value,          from.width, from.height};
  return CUDA_SUCCESS;
}

CUresult Writer::Put(const graph::BatchParams& batch, Out* out) const {
  auto& put = out->emplace<wire::GraphMemoryOperations>();
  put.context = ContextId(batch.context);
  for (const CUstreamBatchMemOpParams& one : batch.operations) {
    wire::GraphMemoryOperation operation;
    operation.operation = static_cast<uint32_t>(one.operation);
    if (one.operation == CU_STREAM_MEM_OP_BARRIER) {
      operation.flags = one.memoryBarrier.flags;
    } else {  // waits and writes have the same layout
      operation.flags = one.waitValue.flags;
      uint64_t address = one.waitValue.address;
      const CUresult status = UseImage(here_, &address);
      if (status != CUDA_SUCCESS) return status;
      operation.address = address;
      operation.value = one.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
                                one.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32
                            ? one.waitValue.value
                            : one.waitValue.value64;
    }
    put.operations.push_back(operation);
  }
  return CUDA_SUCCESS;
}

CUresult Writer::Put(const graph::ChildParams& child, Out* out) {
  wire::GraphChild put;
  const CUresult status = Graph(*child.graph, &put.graph);
  *out = std::move(put);
  return status;
}

CUresult Writer::Put(const graph::ConditionalParams& conditional, Out* out) {
  wire::GraphConditional put;
  put.context = ContextId(conditional.context);
  put.handle = conditional.handle;
  put.type = static_cast<uint32_t>(conditional.type);
  for (const auto& body : conditional.bodies) {
    const CUresult status = Graph(*body, &put.bodies.emplace_back());
    if (status != CUDA_SUCCESS) return status;
  }
  *out = std::move(put);
  return CUDA_SUCCESS;
}

CUresult Writer::Graph(const graph::Graph& graph, wire::GraphDefinition* out) {
  std::unordered_map<const graph::Node*, uint32_t> places;
  for (const auto& node : graph.nodes()) {
    places.emplace(node.get(), static_cast<uint32_t>(places.size()));
    const CUresult status = Node(*node, &out->nodes.emplace_back());
    if (status != CUDA_SUCCESS) return status;
  }
  for (const auto& node : graph.nodes()) {
    for (const graph::Edge& edge : node->before) {
      out->edges.push_back({places[edge.node], places[node.get()], edge.data.from_port,
                            edge.data.to_port, edge.data.type});
    }
  }
  return CUDA_SUCCESS;
}

// A copy from host memory to host memory, which runs like a host function of the program.
struct HostToHost {
  HostRegion to;
  HostRegion from;

  static void Run(void* data) {
    const auto* copy = static_cast<const HostToHost*>(data);
    MoveRows(copy->to, copy->from);
  }
};

void AddCopy(const Here& here, const CUDA_MEMCPY3D& params, uint32_t number, GraphSides* out) {
  Copy copy;
  if (CopyOfNode(here, params, &copy) != CUDA_SUCCESS) return;
  if (!copy.to.device && !copy.from.device) {
    auto both =
        std::make_shared<HostToHost>(HostToHost{Region(copy.to, copy), Region(copy.from, copy)});
    HostCall call;
    call.function = &HostToHost::Run;
    call.data = both.get();
    call.keep = std::move(both);
    out->calls.emplace(number, std::move(call));
    return;
  }
  if (!copy.from.device) out->Add(Region(copy.from, copy), true);
  if (!copy.to.device) out->Add(Region(copy.to, copy), false);
}

}  // namespace

CUresult Define(const Here& here, const graph::Instance& instance, ChangedParams* changed,
                wire::GraphDefinition* definition) {
  return Writer(here, instance, changed).Graph(*instance.graph, definition);
}

CUresult DefineNode(const Here& here, const graph::Instance& instance, uint32_t number,
                    ChangedParams* changed, wire::GraphNode* node) {
  Writer writer(here, instance, changed);
  writer.StartAt(number);
  return writer.Node(*instance.nodes[number].node, node);
}

std::shared_ptr<const GraphSides> SidesOf(const Here& here, const graph::Instance& instance) {
  auto sides = std::make_shared<GraphSides>();
  for (uint32_t number = 0; number < instance.nodes.size(); ++number) {
    const graph::Params& params = instance.nodes[number].node->params;
    if (const auto* host = std::get_if<graph::HostParams>(&params)) {
      HostCall call;
      call.function = host->function;
      call.data = host->data;
      sides->calls.emplace(number, std::move(call));
    } else if (const auto* copy = std::get_if<graph::CopyParams>(&params)) {
      AddCopy(here, copy->copy, number, sides.get());
    }
  }
  return sides;
}

}  // namespace rgpu::shim
