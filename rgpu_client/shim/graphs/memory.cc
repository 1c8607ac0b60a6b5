#include "rgpu_client/shim/graphs/memory.h"

#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/memory.h"
#include "rgpu_client/shim/graphs/graphs.h"
#include "rgpu_common/native/graph/make_params.h"

namespace rgpu::shim {
namespace {

void Reserve(Device& device, uint64_t bytes) {
  MarkSynced(device.graph_reserved_high, device.graph_reserved.fetch_add(bytes) + bytes);
}

struct GraphMemory final : graph::Allocation {
  GraphMemory(const Here& here, uint64_t base, uint64_t size)
      : session(here.session), context(here.context_id()) {
    address = base;
    bytes = size;
    device = here.context->device;
    Reserve(*session->devices().Find(device), bytes);
  }
  ~GraphMemory() override {
    if (!IsOpen(session)) return;
    session->devices().Find(device)->graph_reserved.fetch_sub(bytes);
    Here here{session, &ThisThread(), nullptr, nullptr};
    // Without a range the context is gone, and the memory with it.
    const auto range = session->addresses().Take(address, RangeKind::kDevice, RangeKind::kDevice);
    here.context = session->handles().Find<Context>(context);
    if (!range || here.context == nullptr) return;
    here.channel().Post<op_rgpuMemFree>(here.issuer(), {address});
  }
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;

  Session* const session;
  const uint32_t context;
};

}  // namespace

CUresult AllocateForGraph(const graph::AllocParams& params,
                          std::shared_ptr<graph::Allocation>* out) {
  const CUmemLocation& location = params.props.location;
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  // The memory belongs to a context of its device.
  const Here here = CodeOnDevice(location.id);
  if (here.context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (location.id != here.context->device) return CUDA_ERROR_INVALID_DEVICE;
  CUdeviceptr address = 0;
  const CUresult status = AllocateDevice(here, params.bytes, &address);
  if (status == CUDA_SUCCESS) *out = std::make_shared<GraphMemory>(here, address, params.bytes);
  return status;
}

CUresult MakeAllocNode(int device, uint64_t bytes, CUdeviceptr* dptr, graph::Params* params) {
  CUDA_MEM_ALLOC_NODE_PARAMS node{};
  node.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  node.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  node.bytesize = bytes;
  const CUresult status = graph::MakeAlloc(Graphs().host, node, params);
  if (status == CUDA_SUCCESS) *dptr = std::get<graph::AllocParams>(*params).allocation->address;
  return status;
}

bool FreeOfGraph(CUdeviceptr address, CUresult* result) {
  return graph::FreeGraphMemory(Graphs(), address, result);
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute attr, void* value) {
  auto* out = static_cast<cuuint64_t*>(value);
  const Device* device = CurrentSession()->devices().Find(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  graph::Model& model = Graphs();
  const std::lock_guard lock(model.mutex);
  switch (attr) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
      *out = model.memory.used(dev).now;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
      *out = model.memory.used(dev).high;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
      *out = device->graph_reserved.load();
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
      *out = device->graph_reserved_high.load();
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// High-water marks can only be reset, by 0.
CUresult cuDeviceSetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute attr, void* value) {
  Device* device = CurrentSession()->devices().Find(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (*static_cast<const cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
  graph::Model& model = Graphs();
  const std::lock_guard lock(model.mutex);
  if (attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) {
    model.memory.ResetHigh(dev);
  } else if (attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) {
    device->graph_reserved_high = device->graph_reserved.load();
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

// Memory of graphs goes back as soon as its graphs are gone, so there is nothing to trim.
CUresult cuDeviceGraphMemTrim(CUdevice) { return CUDA_SUCCESS; }

}  // namespace rgpu::shim
