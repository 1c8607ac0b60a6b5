// The copy functions with one row. Each decides which side is host or device memory, and names the
// stream.
#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/copies.h"

namespace rgpu::shim {
namespace {

Side DeviceSide(CUdeviceptr address) { return {address, 0, true}; }
Side HostSide(const void* address) { return {reinterpret_cast<uint64_t>(address), 0, false}; }

Side EitherSide(CUdeviceptr address) {
  return {address, 0, SessionOfAddress(address)->IsDeviceAddress(address)};
}

CUresult Linear(CUstream stream, const Side& to, const Side& from, size_t bytes, bool synchronous) {
  Here here;
  if (const CUresult status = StreamHere(stream, &here); status != CUDA_SUCCESS) return status;
  return RunCopy(here, {to, from, bytes, 1, synchronous});
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

}  // namespace rgpu::shim
