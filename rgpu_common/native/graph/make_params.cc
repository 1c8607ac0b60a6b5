#include "rgpu_common/native/graph/make_params.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "rgpu_common/native/base/batches.h"

namespace rgpu::graph {
namespace {

// More access descriptors than any machine has devices.
constexpr size_t kMaxAccess = 1024;

// Keys of `extra`, as cuda.h documents them.
const auto kEnd = reinterpret_cast<void*>(0);
const auto kBufferPointer = reinterpret_cast<void*>(1);
const auto kBufferSize = reinterpret_cast<void*>(2);

CUresult PackExtra(void** extra, std::vector<uint8_t>* bytes) {
  const void* buffer = nullptr;
  size_t given = 0;
  for (; *extra != kEnd; extra += 2) {
    if (extra[0] == kBufferPointer) {
      buffer = extra[1];
    } else if (extra[0] == kBufferSize && extra[1] != nullptr) {
      given = *static_cast<const size_t*>(extra[1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (given < bytes->size() || (buffer == nullptr && !bytes->empty()))
    return CUDA_ERROR_INVALID_VALUE;
  if (!bytes->empty()) std::memcpy(bytes->data(), buffer, bytes->size());
  return CUDA_SUCCESS;
}

CUresult PackValues(const KernelSite& site, void** values, std::vector<uint8_t>* bytes) {
  if (values == nullptr) return site.places.empty() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < site.places.size(); ++i) {
    const ParamPlace& place = site.places[i];
    const bool inside = place.offset <= bytes->size() && place.size <= bytes->size() - place.offset;
    if (values[i] == nullptr || !inside) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(bytes->data() + place.offset, values[i], place.size);
  }
  return CUDA_SUCCESS;
}

CUresult ContextOf(Host& host, CUcontext given, CUcontext* context) {
  *context = given;
  return given == nullptr ? host.CurrentContext(context) : host.CheckContext(given);
}

// Keeps made parameters if they passed their check.
template <class Made>
CUresult Keep(CUresult checked, Made made, Params* params) {
  if (checked == CUDA_SUCCESS) *params = std::move(made);
  return checked;
}

CUDA_KERNEL_NODE_PARAMS Older(const CUDA_KERNEL_NODE_PARAMS_v3& from) {
  return {from.func,         from.gridDimX,  from.gridDimY,  from.gridDimZ,
          from.blockDimX,    from.blockDimY, from.blockDimZ, from.sharedMemBytes,
          from.kernelParams, from.extra,     from.kern,      from.ctx};
}

CUDA_MEMSET_NODE_PARAMS Older(const CUDA_MEMSET_NODE_PARAMS_v2& from) {
  return {from.dst, from.pitch, from.value, from.elementSize, from.width, from.height};
}

}  // namespace

CUresult PackKernel(const KernelSite& site, void** values, void** extra, KernelParams* kernel) {
  if (values != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  kernel->context = site.context;
  kernel->places = site.places;
  kernel->bytes.assign(site.param_bytes, 0);
  return extra != nullptr ? PackExtra(extra, &kernel->bytes)
                          : PackValues(site, values, &kernel->bytes);
}

CUresult MakeKernel(Host& host, const CUDA_KERNEL_NODE_PARAMS& from, Attributes attributes,
                    Params* params) {
  KernelSite site;
  CUresult result = host.FindKernel(from.func, from.kern, from.ctx, &site);
  if (result != CUDA_SUCCESS) return result;
  KernelParams kernel;
  kernel.function = from.func;
  kernel.kernel = from.func == nullptr ? from.kern : nullptr;
  kernel.grid[0] = from.gridDimX;
  kernel.grid[1] = from.gridDimY;
  kernel.grid[2] = from.gridDimZ;
  kernel.block[0] = from.blockDimX;
  kernel.block[1] = from.blockDimY;
  kernel.block[2] = from.blockDimZ;
  kernel.shared_bytes = from.sharedMemBytes;
  kernel.attributes = std::move(attributes);
  result = PackKernel(site, from.kernelParams, from.extra, &kernel);
  if (result == CUDA_SUCCESS) result = host.CheckKernel(kernel);
  return Keep(result, std::move(kernel), params);
}

CUresult MakeCopy(Host& host, const CUDA_MEMCPY3D& from, CUcontext context, Params* params) {
  CopyParams copy;
  copy.copy = from;
  CUresult result = ContextOf(host, context, &copy.context);
  if (result == CUDA_SUCCESS) result = host.CheckCopy(copy);
  return Keep(result, copy, params);
}

CUresult MakeSet(Host& host, const CUDA_MEMSET_NODE_PARAMS& from, CUcontext context,
                 Params* params) {
  SetParams set;
  set.set = {from.dst, from.pitch, from.value, from.elementSize, from.width, from.height, nullptr};
  const bool element = from.elementSize == 1 || from.elementSize == 2 || from.elementSize == 4;
  if (!element) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = ContextOf(host, context, &set.set.ctx);
  if (result == CUDA_SUCCESS) result = host.CheckSet(set);
  return Keep(result, set, params);
}

CUresult MakeHost(CUhostFn function, void* data, Params* params) {
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *params = HostParams{function, data};
  return CUDA_SUCCESS;
}

CUresult MakeRecord(Host& host, CUevent event, Params* params) {
  return Keep(host.CheckEvent(event), RecordParams{event}, params);
}

CUresult MakeWait(Host& host, CUevent event, Params* params) {
  return Keep(host.CheckEvent(event), WaitParams{event}, params);
}

CUresult MakeBatch(Host& host, const CUDA_BATCH_MEM_OP_NODE_PARAMS& from, Params* params) {
  const bool counted = from.count > 0 && from.count <= kMaxMemoryOperations;
  if (!counted || from.paramArray == nullptr || from.flags != 0) return CUDA_ERROR_INVALID_VALUE;
  BatchParams batch;
  batch.operations.assign(from.paramArray, from.paramArray + from.count);
  CUresult result = ContextOf(host, from.ctx, &batch.context);
  for (const auto& operation : batch.operations) {
    if (result == CUDA_SUCCESS) result = base::CheckMemoryOperation(operation);
  }
  if (result == CUDA_SUCCESS) result = host.CheckBatch(batch);
  return Keep(result, std::move(batch), params);
}

CUresult MakeAlloc(Host& host, const CUDA_MEM_ALLOC_NODE_PARAMS& from, Params* params) {
  if (from.bytesize == 0 || from.accessDescCount > kMaxAccess) return CUDA_ERROR_INVALID_VALUE;
  if (from.accessDescCount != 0 && from.accessDescs == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUmemPoolProps& props = from.poolProps;
  if (props.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      props.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return CUDA_ERROR_INVALID_VALUE;
  if (props.handleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  AllocParams alloc;
  alloc.props = props;
  alloc.bytes = from.bytesize;
  if (from.accessDescCount != 0)
    alloc.access.assign(from.accessDescs, from.accessDescs + from.accessDescCount);
  const CUresult result = host.Allocate(alloc, &alloc.allocation);
  return Keep(result, std::move(alloc), params);
}

CUresult MakeAny(Host& host, const CUgraphNodeParams& from, const Params* before, Params* params) {
  const auto* kernel = before == nullptr ? nullptr : std::get_if<KernelParams>(before);
  switch (from.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return MakeKernel(host, Older(from.kernel),
                        kernel == nullptr ? Attributes() : kernel->attributes, params);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      if (from.memcpy.flags != 0 || from.memcpy.reserved != 0) return CUDA_ERROR_INVALID_VALUE;
      return MakeCopy(host, from.memcpy.copyParams, from.memcpy.copyCtx, params);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return MakeSet(host, Older(from.memset), from.memset.ctx, params);
    case CU_GRAPH_NODE_TYPE_HOST:
      return MakeHost(from.host.fn, from.host.userData, params);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      *params = EmptyParams{};
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return MakeWait(host, from.eventWait.event, params);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return MakeRecord(host, from.eventRecord.event, params);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
      const auto& batch = from.memOp;
      return MakeBatch(host, {batch.ctx, batch.count, batch.paramArray, batch.flags}, params);
    }
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
      const auto& alloc = from.alloc;
      return MakeAlloc(
          host,
          {alloc.poolProps, alloc.accessDescs, alloc.accessDescCount, alloc.bytesize, alloc.dptr},
          params);
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      *params = FreeParams{from.free.dptr};
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUDA_KERNEL_NODE_PARAMS Show(KernelParams& kernel) {
  kernel.pointers.clear();
  for (const ParamPlace& place : kernel.places)
    kernel.pointers.push_back(kernel.bytes.data() + place.offset);
  void** values = kernel.pointers.empty() ? nullptr : kernel.pointers.data();
  return {kernel.function, kernel.grid[0],  kernel.grid[1],  kernel.grid[2],
          kernel.block[0], kernel.block[1], kernel.block[2], kernel.shared_bytes,
          values,          nullptr,         kernel.kernel,   kernel.context};
}

CUDA_MEMSET_NODE_PARAMS Show(const SetParams& set) { return Older(set.set); }

CUDA_BATCH_MEM_OP_NODE_PARAMS Show(BatchParams& batch) {
  return {batch.context, static_cast<unsigned>(batch.operations.size()), batch.operations.data(),
          batch.flags};
}

CUDA_MEM_ALLOC_NODE_PARAMS Show(const AllocParams& alloc) {
  return {alloc.props, alloc.access.data(), alloc.access.size(), alloc.bytes,
          alloc.allocation->address};
}

}  // namespace rgpu::graph
