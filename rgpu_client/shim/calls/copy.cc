// The copy functions. Each decides which side is host or device memory, and names the stream.
#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/copies.h"

namespace rgpu::shim {
namespace {

Side DeviceSide(CUdeviceptr address) { return {address, 0, true}; }
Side HostSide(const void* address) { return {reinterpret_cast<uint64_t>(address), 0, false}; }

Side EitherSide(CUdeviceptr address) {
  return {address, 0, CurrentSession()->IsDeviceAddress(address)};
}

CUresult Linear(CUstream stream, const Side& to, const Side& from, size_t bytes, bool synchronous) {
  Here here;
  if (const CUresult status = StreamHere(stream, &here); status != CUDA_SUCCESS) return status;
  return RunCopy(here, {to, from, bytes, 1, synchronous});
}

CUresult PlaneSide(CUmemorytype type, const void* host, CUdeviceptr device, Side* side) {
  switch (type) {
    case CU_MEMORYTYPE_HOST:
      *side = HostSide(host);
      return CUDA_SUCCESS;
    case CU_MEMORYTYPE_DEVICE:
      *side = DeviceSide(device);
      return CUDA_SUCCESS;
    case CU_MEMORYTYPE_UNIFIED:
      *side = EitherSide(device);
      return CUDA_SUCCESS;
    case CU_MEMORYTYPE_ARRAY:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// Moves a side's address to the first byte of the copy. False: the address overflows.
bool Advance(Side* side, size_t x_bytes, size_t y, size_t pitch) {
  side->pitch = pitch;
  uint64_t offset = 0;
  return !__builtin_mul_overflow(y, pitch, &offset) &&
         !__builtin_add_overflow(offset, x_bytes, &offset) &&
         !__builtin_add_overflow(side->address, offset, &side->address);
}

CUresult Plane(const CUDA_MEMCPY2D* copy, CUstream stream, bool synchronous) {
  Here here;
  if (const CUresult status = StreamHere(stream, &here); status != CUDA_SUCCESS) return status;
  Side to;
  Side from;
  CUresult status = PlaneSide(copy->dstMemoryType, copy->dstHost, copy->dstDevice, &to);
  if (status != CUDA_SUCCESS) return status;
  status = PlaneSide(copy->srcMemoryType, copy->srcHost, copy->srcDevice, &from);
  if (status != CUDA_SUCCESS) return status;
  // A pitch of 0 means rows without gaps.
  const size_t to_pitch = copy->dstPitch == 0 ? copy->WidthInBytes : copy->dstPitch;
  const size_t from_pitch = copy->srcPitch == 0 ? copy->WidthInBytes : copy->srcPitch;
  if (!Advance(&to, copy->dstXInBytes, copy->dstY, to_pitch) ||
      !Advance(&from, copy->srcXInBytes, copy->srcY, from_pitch)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return RunCopy(here, {to, from, copy->WidthInBytes, copy->Height, synchronous});
}

}  // namespace

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  return Linear(nullptr, EitherSide(dst), EitherSide(src), ByteCount, true);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
  return Linear(hStream, EitherSide(dst), EitherSide(src), ByteCount, false);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
  return Linear(nullptr, DeviceSide(dstDevice), HostSide(srcHost), ByteCount, true);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount,
                              CUstream hStream) {
  return Linear(hStream, DeviceSide(dstDevice), HostSide(srcHost), ByteCount, false);
}

CUresult cuMemcpyDtoH_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  return Linear(nullptr, HostSide(dstHost), DeviceSide(srcDevice), ByteCount, true);
}

CUresult cuMemcpyDtoHAsync_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
  return Linear(hStream, HostSide(dstHost), DeviceSide(srcDevice), ByteCount, false);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
  return Linear(nullptr, DeviceSide(dstDevice), DeviceSide(srcDevice), ByteCount, true);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
  return Linear(hStream, DeviceSide(dstDevice), DeviceSide(srcDevice), ByteCount, false);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* pCopy) { return Plane(pCopy, nullptr, true); }

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* pCopy) { return Plane(pCopy, nullptr, true); }

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* pCopy, CUstream hStream) {
  return Plane(pCopy, hStream, false);
}

}  // namespace rgpu::shim
