#include "rgpu_server/executor/graphs/params.h"

#include <algorithm>

#include "rgpu_common/native/base/batches.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/loads.h"
#include "rgpu_server/executor/rows.h"

namespace rgpu::exec {

namespace {

// From the first byte of a side to the end of its last row. False: the rows overlap or overflow.
bool SpanOf(const wire::GraphSide& side, const wire::GraphCopy& copy, uint64_t* span) {
  uint64_t slice = copy.width;
  *span = copy.width;
  if (copy.height > 1) {
    if (side.pitch < copy.width || __builtin_mul_overflow(side.pitch, copy.height - 1, &slice) ||
        __builtin_add_overflow(slice, copy.width, &slice)) {
      return false;
    }
    *span = slice;
  }
  if (copy.depth == 1) return true;
  const bool apart = side.slice >= slice && side.pitch != 0 && side.slice % side.pitch == 0;
  return apart && !__builtin_mul_overflow(side.slice, copy.depth - 1, span) &&
         !__builtin_add_overflow(*span, slice, span);
}

void PutSide(const wire::GraphSide& side, CUmemorytype* type, CUdeviceptr* device, size_t* pitch,
             size_t* height) {
  *type = CU_MEMORYTYPE_DEVICE;
  *device = side.address;
  *pitch = side.pitch;
  *height = side.pitch == 0 ? 0 : side.slice / side.pitch;
}

}  // namespace

bool BytesOf(const wire::GraphCopy& copy, uint64_t* bytes) {
  return !__builtin_mul_overflow(copy.width, copy.height, bytes) &&
         !__builtin_mul_overflow(*bytes, copy.depth, bytes);
}

bool SameShape(const wire::GraphCopy& one, const wire::GraphCopy& other) {
  const auto same = [](const wire::GraphSide& a, const wire::GraphSide& b) {
    return a.host == b.host && a.pitch == b.pitch && a.slice == b.slice;
  };
  return same(one.to, other.to) && same(one.from, other.from) && one.width == other.width &&
         one.height == other.height && one.depth == other.depth && one.context == other.context;
}

CUresult GraphOperands::Remember(const std::shared_ptr<Context>& context) {
  if (context->closing) return CUDA_ERROR_INVALID_CONTEXT;
  if (std::ranges::find(contexts_, context) == contexts_.end()) contexts_.push_back(context);
  return CUDA_SUCCESS;
}

CUresult GraphOperands::ContextOf(uint32_t id, CUcontext* out) {
  std::shared_ptr<Context> found = own_;
  if (id != 0 && executor_.objects().contexts.Share(id, &found) != CUDA_SUCCESS) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  *out = found->handle;
  return Remember(found);
}

CUresult GraphOperands::Kernel(const wire::GraphKernel& kernel, KernelParams* out) {
  const CUresult found = kernel.function != 0
                             ? executor_.objects().functions.Share(kernel.function, &out->function)
                             : executor_.objects().kernels.Share(kernel.kernel, &out->function);
  if (found != CUDA_SUCCESS) return found == kDropped ? CUDA_ERROR_INVALID_HANDLE : found;
  const Function& function = *out->function;
  // A function belongs to one context; a kernel runs in the context that is named.
  const uint32_t context = function.function != nullptr ? function.context : kernel.context;
  CUcontext named = nullptr;
  if (const CUresult result = ContextOf(context, &named); result != CUDA_SUCCESS) return result;
  CUDA_KERNEL_NODE_PARAMS& driver = out->driver;
  driver.func = function.function;
  driver.kern = function.function == nullptr ? function.kernel : nullptr;
  driver.ctx = named;
  driver.gridDimX = kernel.grid[0];
  driver.gridDimY = kernel.grid[1];
  driver.gridDimZ = kernel.grid[2];
  driver.blockDimX = kernel.block[0];
  driver.blockDimY = kernel.block[1];
  driver.blockDimZ = kernel.block[2];
  driver.sharedMemBytes = kernel.shared_bytes;
  out->bytes = kernel.parameters.size;
  out->extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
  out->extra[1] = const_cast<uint8_t*>(kernel.parameters.data);
  out->extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
  out->extra[3] = &out->bytes;
  out->extra[4] = CU_LAUNCH_PARAM_END;
  if (out->bytes != 0) driver.extra = out->extra;
  return CUDA_SUCCESS;
}

CUresult GraphOperands::CheckSide(const wire::GraphSide& side, const wire::GraphCopy& copy) {
  uint64_t span = 0;
  if (!SpanOf(side, copy, &span)) return CUDA_ERROR_INVALID_VALUE;
  return executor_.objects().ranges.Check(side.address, span);
}

CUresult GraphOperands::Copy(const wire::GraphCopy& copy, CUDA_MEMCPY3D* out, CUcontext* context) {
  CUresult result = ContextOf(copy.context, context);
  uint64_t bytes = 0;
  if (result == CUDA_SUCCESS && (!BytesOf(copy, &bytes) || bytes == 0)) {
    result = CUDA_ERROR_INVALID_VALUE;
  }
  if (result == CUDA_SUCCESS) result = CheckSide(copy.to, copy);
  if (result == CUDA_SUCCESS) result = CheckSide(copy.from, copy);
  if (result != CUDA_SUCCESS) return result;
  *out = {};
  PutSide(copy.from, &out->srcMemoryType, &out->srcDevice, &out->srcPitch, &out->srcHeight);
  PutSide(copy.to, &out->dstMemoryType, &out->dstDevice, &out->dstPitch, &out->dstHeight);
  out->WidthInBytes = copy.width;
  out->Height = copy.height;
  out->Depth = copy.depth;
  return CUDA_SUCCESS;
}

CUresult GraphOperands::CheckHostCopy(const wire::GraphCopy& copy, CUcontext* context) {
  const CUresult result = ContextOf(copy.context, context);
  if (result != CUDA_SUCCESS) return result;
  uint64_t bytes = 0;
  if (!BytesOf(copy, &bytes) || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  return CheckSide(copy.to.host ? copy.from : copy.to, copy);
}

CUresult GraphOperands::Set(const wire::GraphSet& set, CUDA_MEMSET_NODE_PARAMS* out,
                            CUcontext* context) {
  const CUresult result = ContextOf(set.context, context);
  if (result != CUDA_SUCCESS) return result;
  const uint32_t element = set.element_bytes;
  uint64_t width = 0;
  if ((element != 1 && element != 2 && element != 4) || set.width == 0 || set.height == 0 ||
      __builtin_mul_overflow(set.width, uint64_t{element}, &width)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out = {};
  out->dst = set.to;
  out->pitch = set.pitch;
  out->value = set.value;
  out->elementSize = element;
  out->width = set.width;
  out->height = set.height;
  return executor_.objects().ranges.CheckRows(set.to, set.pitch, width, set.height);
}

CUresult GraphOperands::EventOf(uint64_t id, std::shared_ptr<Event>* event, CUevent* out) {
  const CUresult found = executor_.objects().events.Share(id, event);
  if (found != CUDA_SUCCESS) return found == kDropped ? CUDA_ERROR_INVALID_HANDLE : found;
  std::shared_ptr<Context> context;
  CUresult result = executor_.objects().contexts.Share((*event)->context, &context);
  if (result != CUDA_SUCCESS || context->closing) return CUDA_ERROR_INVALID_CONTEXT;
  if ((*event)->fixed == nullptr) {
    result = executor_.MakeCurrent(*context);
    if (result == CUDA_SUCCESS) result = FixEvent(*context, event->get());
    if (const CUresult back = executor_.MakeCurrent(*own_); result == CUDA_SUCCESS) result = back;
  }
  if (result != CUDA_SUCCESS) return result;
  *out = (*event)->fixed->event;
  return Remember(context);
}

CUresult GraphOperands::MemoryOperations(const wire::GraphMemoryOperations& batch,
                                         std::vector<CUstreamBatchMemOpParams>* operations,
                                         CUDA_BATCH_MEM_OP_NODE_PARAMS* out) {
  *out = {};
  if (const CUresult result = ContextOf(batch.context, &out->ctx); result != CUDA_SUCCESS) {
    return result;
  }
  if (batch.operations.empty()) return CUDA_ERROR_INVALID_VALUE;
  for (const wire::GraphMemoryOperation& one : batch.operations) {
    CUstreamBatchMemOpParams params{};
    params.operation = static_cast<CUstreamBatchMemOpType>(one.operation);
    if (params.operation == CU_STREAM_MEM_OP_BARRIER) {
      params.memoryBarrier.flags = one.flags;
    } else {  // waits and writes have the same layout
      params.waitValue.address = one.address;
      params.waitValue.value64 = one.value;
      params.waitValue.flags = one.flags;
    }
    CUresult result = base::CheckMemoryOperation(params);
    const uint32_t width = result == CUDA_SUCCESS ? base::WidthOf(params) : 0;
    if (width != 0) {
      result = one.address % width == 0 ? executor_.objects().ranges.Check(one.address, width)
                                        : CUDA_ERROR_INVALID_VALUE;
    }
    if (result != CUDA_SUCCESS) return result;
    operations->push_back(params);
  }
  out->count = static_cast<unsigned int>(operations->size());
  out->paramArray = operations->data();
  return CUDA_SUCCESS;
}

std::vector<Portion> PortionsOf(const wire::GraphCopy& copy) {
  const wire::GraphSide& side = copy.to.host ? copy.from : copy.to;
  const uint64_t slice_bytes = copy.width * copy.height;
  std::vector<Portion> portions;
  for (uint64_t z = 0; z < copy.depth; ++z) {
    Rows rows{side.address + z * side.slice, side.pitch, copy.width, copy.height};
    if (rows.pitch == rows.width) rows = {rows.address, 0, slice_bytes, 1};
    for (uint64_t offset = 0; offset < slice_bytes;) {
      Portion portion = PortionAt(rows, offset);
      offset += portion.bytes();
      portion.offset += z * slice_bytes;
      portions.push_back(portion);
    }
  }
  return portions;
}

CUDA_MEMCPY3D CopyOfPortion(const wire::GraphCopy& copy, const Portion& portion, uint8_t* staging) {
  CUDA_MEMCPY3D params{};
  const wire::GraphSide& side = copy.to.host ? copy.from : copy.to;
  if (copy.to.host) {
    params.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    params.srcDevice = portion.address;
    params.srcPitch = portion.height > 1 ? side.pitch : portion.width;
    params.dstMemoryType = CU_MEMORYTYPE_HOST;
    params.dstHost = staging;
    params.dstPitch = portion.width;
  } else {
    params.srcMemoryType = CU_MEMORYTYPE_HOST;
    params.srcHost = staging;
    params.srcPitch = portion.width;
    params.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    params.dstDevice = portion.address;
    params.dstPitch = portion.height > 1 ? side.pitch : portion.width;
  }
  params.WidthInBytes = portion.width;
  params.Height = portion.height;
  params.Depth = 1;
  return params;
}

}  // namespace rgpu::exec
