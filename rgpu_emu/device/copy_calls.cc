// Calls cuMemcpy* with one row: find the kind of each side, then use copy.cc.
#include "rgpu_emu/device/copy.h"
#include "rgpu_emu/device/device.h"

namespace rgpu::emu {
namespace {

constexpr PointerKind kAny = PointerKind::kInvalid;
constexpr PointerKind kDev = PointerKind::kDevice;
constexpr PointerKind kHost = PointerKind::kPageable;

struct Sides {
  PointerKind dst;
  PointerKind src;
};

uint64_t Address(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

CUresult Copy(CopyPlan plan, Sides sides, CUstream operand, bool wait) {
  std::shared_ptr<Stream> stream;
  CUresult result = FindStream(operand, &stream);
  if (result != CUDA_SUCCESS) return result;
  result = CheckPlan(&plan, sides.dst, sides.src);
  if (result != CUDA_SUCCESS) return result;
  return wait ? SynchronousCopy(plan, stream) : AsynchronousCopy(plan, stream);
}

}  // namespace

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  return Copy(Linear(dst, src, ByteCount), {kAny, kAny}, nullptr, true);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
  return Copy(Linear(dstDevice, Address(srcHost), ByteCount), {kDev, kHost}, nullptr, true);
}

CUresult cuMemcpyDtoH_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  return Copy(Linear(Address(dstHost), srcDevice, ByteCount), {kHost, kDev}, nullptr, true);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
  return Copy(Linear(dstDevice, srcDevice, ByteCount), {kDev, kDev}, nullptr, true);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
  return Copy(Linear(dst, src, ByteCount), {kAny, kAny}, hStream, false);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount,
                              CUstream hStream) {
  return Copy(Linear(dstDevice, Address(srcHost), ByteCount), {kDev, kHost}, hStream, false);
}

CUresult cuMemcpyDtoHAsync_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
  return Copy(Linear(Address(dstHost), srcDevice, ByteCount), {kHost, kDev}, hStream, false);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
  return Copy(Linear(dstDevice, srcDevice, ByteCount), {kDev, kDev}, hStream, false);
}

}  // namespace rgpu::emu
