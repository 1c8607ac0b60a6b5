// Calls cuMemcpy*: find the kind of each side, then use copy.cc.
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

struct Side2D {
  CUmemorytype type;
  uint64_t host;
  uint64_t device;
  uint64_t pitch;
  uint64_t x;
  uint64_t y;
};

// Sets the address of the first byte, and the kind that the pointer must have.
CUresult Resolve(const Side2D& side, uint64_t width, uint64_t* address, PointerKind* required) {
  switch (side.type) {
    case CU_MEMORYTYPE_HOST:
      *address = side.host;
      *required = kHost;
      break;
    case CU_MEMORYTYPE_DEVICE:
      *address = side.device;
      *required = kDev;
      break;
    case CU_MEMORYTYPE_UNIFIED:
      *address = side.device;
      *required = kAny;
      break;
    case CU_MEMORYTYPE_ARRAY:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  uint64_t rows = 0;
  uint64_t row_end = 0;
  if (__builtin_mul_overflow(side.pitch, side.y, &rows) ||
      __builtin_add_overflow(*address, rows, address) ||
      __builtin_add_overflow(*address, side.x, address) ||
      __builtin_add_overflow(side.x, width, &row_end)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Pitch 0 means a single row, or rows without gaps.
  return side.pitch != 0 && side.pitch < row_end ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult Copy2D(const CUDA_MEMCPY2D* copy, CUstream stream, bool wait) {
  CopyPlan plan;
  plan.width = copy->WidthInBytes;
  plan.height = copy->Height;
  plan.dst_pitch = copy->dstPitch == 0 ? copy->WidthInBytes : copy->dstPitch;
  plan.src_pitch = copy->srcPitch == 0 ? copy->WidthInBytes : copy->srcPitch;
  Sides sides{kAny, kAny};
  const Side2D dst{copy->dstMemoryType, Address(copy->dstHost), copy->dstDevice,
                   plan.dst_pitch,      copy->dstXInBytes,      copy->dstY};
  const Side2D src{copy->srcMemoryType, Address(copy->srcHost), copy->srcDevice,
                   plan.src_pitch,      copy->srcXInBytes,      copy->srcY};
  CUresult result = Resolve(dst, plan.width, &plan.dst, &sides.dst);
  if (result == CUDA_SUCCESS) result = Resolve(src, plan.width, &plan.src, &sides.src);
  return result == CUDA_SUCCESS ? Copy(plan, sides, stream, wait) : result;
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

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* pCopy) { return Copy2D(pCopy, nullptr, true); }
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* pCopy) { return Copy2D(pCopy, nullptr, true); }
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* pCopy, CUstream hStream) {
  return Copy2D(pCopy, hStream, false);
}

}  // namespace rgpu::emu
