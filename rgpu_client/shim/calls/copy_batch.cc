// cuMemcpyBatchAsync. Its copies are made one by one, in the order of the arrays.
#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/copies.h"
#include "rgpu_common/native/base/batches.h"

namespace rgpu::shim {
namespace {

struct Batch {
  const CUdeviceptr* to;
  const CUdeviceptr* from;
  const size_t* bytes;
  size_t count;
};

Side SideOf(CUdeviceptr address, size_t bytes) {
  return {address, bytes, SessionOfAddress(address)->IsDeviceAddress(address)};
}

CUresult CheckCopies(const Batch& batch) {
  for (size_t i = 0; i < batch.count; ++i) {
    const size_t bytes = batch.bytes[i];
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    for (const CUdeviceptr address : {batch.to[i], batch.from[i]}) {
      const Side side = SideOf(address, bytes);
      if (address == 0 ||
          (side.device && !IsKnownDeviceMemory(AddressHere(address), side, bytes, 1))) {
        return CUDA_ERROR_INVALID_VALUE;
      }
    }
  }
  return CUDA_SUCCESS;
}

CUresult RunOne(const Here& here, const Batch& batch, size_t i, CUmemcpySrcAccessOrder order) {
  Copy copy;
  copy.to = SideOf(batch.to[i], batch.bytes[i]);
  copy.from = SideOf(batch.from[i], batch.bytes[i]);
  copy.width = batch.bytes[i];
  copy.synchronous = false;
  copy.source_order =
      order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ? SourceOrder::kStream : SourceOrder::kAtCall;
  return RunCopyOfBatch(here, copy);
}

}  // namespace

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                               CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs,
                               CUstream hStream) {
  Here here;
  if (const CUresult bad = StreamHere(hStream, &here); bad != CUDA_SUCCESS) return bad;
  // cuda.h: the stream must not be the legacy null stream.
  if (here.stream->wire == kWireLegacyStream) return CUDA_ERROR_INVALID_VALUE;
  const Batch batch{dsts, srcs, sizes, count};
  CUresult status = base::CheckCopyAttributes(attrs, attrsIdxs, numAttrs, count);
  if (status == CUDA_SUCCESS) status = CheckCopies(batch);
  size_t attribute = 0;
  for (size_t i = 0; i < count && status == CUDA_SUCCESS; ++i) {
    while (attribute + 1 < numAttrs && attrsIdxs[attribute + 1] <= i) ++attribute;
    status = RunOne(here, batch, i, attrs[attribute].srcAccessOrder);
  }
  return status;
}

}  // namespace rgpu::shim
