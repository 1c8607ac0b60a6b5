// The memset functions.
#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/copies.h"
#include "rgpu_client/shim/calls/pinned_params.h"
#include "rgpu_client/shim/graphs/graphs.h"
#include "rgpu_client/shim/trace.h"

namespace rgpu::shim {
namespace {

struct Fill {
  CUdeviceptr to = 0;
  size_t pitch = 0;
  uint32_t element_bytes = 1;
  uint32_t value = 0;
  size_t width = 0;  // elements
  size_t height = 1;
};

// True: the set is over, and the call returns `*status`.
bool CapturedSet(const Here& here, const Fill& fill, uint64_t pitch, bool synchronous,
                 CUresult* status) {
  if (!Graphs().captures.active()) return false;
  if (synchronous) {
    *status = CheckSynchronousWork(here);
    return *status != CUDA_SUCCESS;
  }
  return Captured(here, status, [&](graph::Params* params) {
    graph::SetParams node;
    node.set.dst = fill.to;
    node.set.pitch = pitch;
    node.set.value = fill.value;
    node.set.elementSize = fill.element_bytes;
    node.set.width = fill.width;
    node.set.height = fill.height;
    node.set.ctx = MakeHandle<CUcontext>(here.context->id);
    *params = node;
    return CUDA_SUCCESS;
  });
}

CUresult Run(CUstream stream, const Fill& fill, bool synchronous) {
  Here here;
  if (const CUresult status = StreamHere(stream, &here); status != CUDA_SUCCESS) return status;
  if (const CUresult status = here.channel().sticky(); status != CUDA_SUCCESS) return status;
  if (fill.width == 0 || fill.height == 0) return CUDA_SUCCESS;
  uint64_t row_bytes = 0;
  const bool aligned = fill.to % fill.element_bytes == 0 &&
                       (fill.height == 1 || fill.pitch % fill.element_bytes == 0);
  if (!aligned || __builtin_mul_overflow(fill.width, fill.element_bytes, &row_bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Side target{fill.to, fill.pitch, true};
  CUresult status = UseImage(here, &target.address);
  if (status != CUDA_SUCCESS) return status;
  if (!IsKnownDeviceMemory(here, target, row_bytes, fill.height)) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t pitch = fill.height == 1 ? row_bytes : fill.pitch;
  if (CapturedSet(here, fill, pitch, synchronous, &status)) return status;
  UseDeviceMemory(here, target, row_bytes, fill.height, true);
  TraceBytes(row_bytes * fill.height);
  status =
      here.channel().Post<op_rgpuMemset>(here.issuer(),
                                         {target.address, pitch, fill.element_bytes, fill.value,
                                          fill.width, fill.height, here.stream->wire, synchronous},
                                         CountedWork(here, 0, Reach::kNamed));
  if (status != CUDA_SUCCESS || !synchronous) return status;
  return FinishSynchronous(here, target, false);
}

}  // namespace

CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
  return Run(nullptr, {dstDevice, 0, 1, uc, N, 1}, true);
}
CUresult cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N) {
  return Run(nullptr, {dstDevice, 0, 2, us, N, 1}, true);
}
CUresult cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N) {
  return Run(nullptr, {dstDevice, 0, 4, ui, N, 1}, true);
}
CUresult cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                         size_t Height) {
  return Run(nullptr, {dstDevice, dstPitch, 1, uc, Width, Height}, true);
}
CUresult cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                          size_t Height) {
  return Run(nullptr, {dstDevice, dstPitch, 2, us, Width, Height}, true);
}
CUresult cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                          size_t Height) {
  return Run(nullptr, {dstDevice, dstPitch, 4, ui, Width, Height}, true);
}
CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream) {
  return Run(hStream, {dstDevice, 0, 1, uc, N, 1}, false);
}
CUresult cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream) {
  return Run(hStream, {dstDevice, 0, 2, us, N, 1}, false);
}
CUresult cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream) {
  return Run(hStream, {dstDevice, 0, 4, ui, N, 1}, false);
}
CUresult cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                           size_t Height, CUstream hStream) {
  return Run(hStream, {dstDevice, dstPitch, 1, uc, Width, Height}, false);
}
CUresult cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                            size_t Height, CUstream hStream) {
  return Run(hStream, {dstDevice, dstPitch, 2, us, Width, Height}, false);
}
CUresult cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                            size_t Height, CUstream hStream) {
  return Run(hStream, {dstDevice, dstPitch, 4, ui, Width, Height}, false);
}

}  // namespace rgpu::shim
