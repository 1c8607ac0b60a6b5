#include "rgpu_server/executor/graphs/params.h"

#include <algorithm>

#include "rgpu_common/native/base/batches.h"
#include "rgpu_server/executor/boxes.h"
#include "rgpu_server/executor/copies.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/loads.h"

namespace rgpu::exec {

namespace {

// What a copy with a host side may become.
constexpr uint64_t kMaxPortions = 64U << 10;

}  // namespace

bool BytesOf(const wire::GraphCopy& copy, uint64_t* bytes) {
  return !__builtin_mul_overflow(copy.width, copy.height, bytes) &&
         !__builtin_mul_overflow(*bytes, copy.depth, bytes);
}

bool SameShape(const wire::GraphCopy& one, const wire::GraphCopy& other) {
  return one.to.index() == other.to.index() && one.from.index() == other.from.index() &&
         one.width == other.width && one.height == other.height && one.depth == other.depth &&
         one.context == other.context;
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

CUresult GraphOperands::Begin(const wire::GraphCopy& copy, CopyParams* out) {
  const CUresult result = ContextOf(copy.context, &out->context);
  uint64_t bytes = 0;
  if (result != CUDA_SUCCESS) return result;
  return BytesOf(copy, &bytes) && bytes != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// The graph keeps what the worker knows of the array, and so finds out when the array is gone.
CUresult GraphOperands::PlaceInArray(const wire::GraphArraySide& side, Rows* rows,
                                     CopyParams* out) {
  std::shared_ptr<Array> array;
  CUresult result = executor_.objects().arrays.Share(side.array, &array);
  if (result != CUDA_SUCCESS) return result == kDropped ? CUDA_ERROR_INVALID_HANDLE : result;
  std::shared_ptr<Context> owner;
  result = executor_.objects().contexts.Share(array->context, &owner);
  if (result != CUDA_SUCCESS) return CUDA_ERROR_INVALID_CONTEXT;
  if (result = Remember(owner); result != CUDA_SUCCESS) return result;
  rows->place = {nullptr, side.x, side.y, side.z};
  if (result = PlaceIn(*array, rows); result != CUDA_SUCCESS) return result;
  array->in_graphs = true;
  out->arrays.push_back(std::move(array));
  return CUDA_SUCCESS;
}

CUresult GraphOperands::SideOf(const wire::GraphSide& side, const wire::GraphCopy& copy, Rows* rows,
                               CopyParams* out) {
  rows->width = copy.width;
  rows->height = copy.height;
  rows->depth = copy.depth;
  if (const auto* array = std::get_if<wire::GraphArraySide>(&side)) {
    return PlaceInArray(*array, rows, out);
  }
  const auto* linear = std::get_if<wire::GraphLinearSide>(&side);
  if (linear == nullptr) return CUDA_ERROR_INVALID_VALUE;
  rows->address = linear->address;
  // The distance between rows, or slices, of which there is one does not matter.
  rows->pitch = copy.height == 1 && copy.depth == 1 ? copy.width : linear->pitch;
  rows->rows = copy.depth == 1 ? copy.height : linear->rows;
  uint64_t total = 0;
  return CheckRows(executor_, *rows, &total);
}

CUresult GraphOperands::Copy(const wire::GraphCopy& copy, CopyParams* out) {
  Rows to;
  Rows from;
  CUresult result = Begin(copy, out);
  if (result == CUDA_SUCCESS) result = SideOf(copy.to, copy, &to, out);
  if (result == CUDA_SUCCESS) result = SideOf(copy.from, copy, &from, out);
  if (result != CUDA_SUCCESS) return result;
  SetTarget(to, &out->driver);
  SetSource(from, &out->driver);
  out->driver.WidthInBytes = copy.width;
  out->driver.Height = copy.height;
  out->driver.Depth = copy.depth;
  return CUDA_SUCCESS;
}

CUresult GraphOperands::HostCopy(const wire::GraphCopy& copy, CopyParams* out) {
  const CUresult result = Begin(copy, out);
  if (result != CUDA_SUCCESS) return result;
  return SideOf(IsHost(copy.to) ? copy.from : copy.to, copy, &out->rows, out);
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
  // Other processes would not learn of its records.
  if ((*event)->shared != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
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

bool PortionsOf(const Rows& rows, std::vector<Portion>* portions) {
  uint64_t total = 0;
  if (!rows.Total(&total)) return false;
  for (uint64_t offset = 0; offset < total;) {
    if (portions->size() == kMaxPortions) return false;
    portions->push_back(PortionAt(rows, offset));
    offset += portions->back().bytes();
  }
  return true;
}

CUDA_MEMCPY3D CopyOfPortion(const wire::GraphCopy& copy, const Rows& rows, const Portion& portion,
                            uint8_t* staging) {
  return IsHost(copy.to) ? ParamsOut(rows, portion, staging) : ParamsIn(rows, portion, staging);
}

}  // namespace rgpu::exec
