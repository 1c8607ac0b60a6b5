// Call cuMemcpyBatchAsync. Its copies are issued one by one, in the order of the arrays.
#include "rgpu_common/native/base/batches.h"
#include "rgpu_emu/device/copy.h"
#include "rgpu_emu/device/device.h"

namespace rgpu::emu {
namespace {

bool IsHost(PointerKind kind) {
  return kind == PointerKind::kPageable || kind == PointerKind::kPinned;
}

CUresult Push(CopyPlan plan, CUmemcpySrcAccessOrder order, const std::shared_ptr<Stream>& stream) {
  const bool upload = IsHost(plan.src_kind) && plan.dst_kind == PointerKind::kDevice;
  if (upload && order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM) {
    CUresult captured = CUDA_SUCCESS;
    if (CaptureCopy(plan, *stream, &captured)) return captured;
    Command command;
    command.run = [plan] {
      return MoveBytes(plan) == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
    };
    return stream->Push(std::move(command));
  }
  // As from pageable memory, whose bytes are taken before the call returns.
  if (upload) plan.src_kind = PointerKind::kPageable;
  return AsynchronousCopy(plan, stream);
}

}  // namespace

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                               CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs,
                               CUstream hStream) {
  std::shared_ptr<Stream> stream;
  CUresult result = FindStream(hStream, &stream);
  if (result != CUDA_SUCCESS) return result;
  // cuda.h: the stream must not be the legacy null stream.
  if (stream->kind == StreamKind::kLegacy) return CUDA_ERROR_INVALID_VALUE;
  result = base::CheckCopyAttributes(attrs, attrsIdxs, numAttrs, count);
  std::vector<CopyPlan> plans(count);
  for (size_t i = 0; i < count && result == CUDA_SUCCESS; ++i) {
    plans[i] = Linear(dsts[i], srcs[i], sizes[i]);
    result = sizes[i] == 0 ? CUDA_ERROR_INVALID_VALUE
                           : CheckPlan(&plans[i], PointerKind::kInvalid, PointerKind::kInvalid);
  }
  size_t attribute = 0;
  for (size_t i = 0; i < count && result == CUDA_SUCCESS; ++i) {
    while (attribute + 1 < numAttrs && attrsIdxs[attribute + 1] <= i) ++attribute;
    result = Push(plans[i], attrs[attribute].srcAccessOrder, stream);
  }
  return result;
}

}  // namespace rgpu::emu
