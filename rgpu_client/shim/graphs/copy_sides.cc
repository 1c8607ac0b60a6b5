#include "rgpu_client/shim/graphs/copy_sides.h"

#include <algorithm>

namespace rgpu::shim {
namespace {

// What CUDA_MEMCPY3D says about one side.
struct Given {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  size_t pitch, height;         // height: rows from one slice to the next
  size_t x_bytes, y, z, level;  // where the copy begins
};

CUresult Place(const Here& here, const Given& given, CopySide* side) {
  switch (given.type) {
    case CU_MEMORYTYPE_HOST:
      side->address = reinterpret_cast<uint64_t>(given.host);
      side->host = true;
      break;
    case CU_MEMORYTYPE_DEVICE:
      side->address = given.device;
      break;
    case CU_MEMORYTYPE_UNIFIED:
      side->address = given.device;
      side->host = !here.session->IsDeviceAddress(given.device);
      break;
    case CU_MEMORYTYPE_ARRAY:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return given.level == 0 && side->address != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// False: overflows, or rows or slices overlap.
bool Shape(const Given& given, const CopySides& copy, CopySide* side) {
  side->pitch = given.pitch == 0 ? copy.width : given.pitch;
  const uint64_t rows = given.height == 0 ? copy.height : given.height;
  uint64_t skip = 0;
  uint64_t skipped_slices = 0;
  if (copy.height > 1 && side->pitch < copy.width) return false;
  if (copy.depth > 1 && rows < copy.height) return false;
  return !__builtin_mul_overflow(side->pitch, rows, &side->slice) &&
         !__builtin_mul_overflow(side->slice, given.z, &skipped_slices) &&
         !__builtin_mul_overflow(side->pitch, given.y, &skip) &&
         !__builtin_add_overflow(skip, skipped_slices, &skip) &&
         !__builtin_add_overflow(skip, given.x_bytes, &skip) &&
         !__builtin_add_overflow(side->address, skip, &side->address);
}

// False: the copy leaves the memory that is known. Host memory is found out when it is touched.
bool Fits(const Here& here, const CopySides& copy, const CopySide& side) {
  uint64_t rows = 0;
  uint64_t slices = 0;
  uint64_t end = 0;
  if (__builtin_mul_overflow(side.pitch, copy.height - 1, &rows) ||
      __builtin_mul_overflow(side.slice, copy.depth - 1, &slices) ||
      __builtin_add_overflow(rows, slices, &end) || __builtin_add_overflow(end, copy.width, &end)) {
    return false;
  }
  return side.host || here.session->addresses().MayAccess(side.address, end);
}

}  // namespace

CUresult FindSides(const Here& here, const CUDA_MEMCPY3D& copy, CopySides* sides) {
  const Given to{copy.dstMemoryType, copy.dstHost, copy.dstDevice, copy.dstPitch, copy.dstHeight,
                 copy.dstXInBytes,   copy.dstY,    copy.dstZ,      copy.dstLOD};
  const Given from{copy.srcMemoryType, copy.srcHost, copy.srcDevice, copy.srcPitch, copy.srcHeight,
                   copy.srcXInBytes,   copy.srcY,    copy.srcZ,      copy.srcLOD};
  sides->width = copy.WidthInBytes;
  sides->height = std::max<size_t>(copy.Height, 1);
  sides->depth = std::max<size_t>(copy.Depth, 1);
  if (sides->width == 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult status = Place(here, to, &sides->to);
  if (status == CUDA_SUCCESS) status = Place(here, from, &sides->from);
  if (status != CUDA_SUCCESS) return status;
  const bool good = Shape(to, *sides, &sides->to) && Shape(from, *sides, &sides->from) &&
                    Fits(here, *sides, sides->to) && Fits(here, *sides, sides->from);
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace rgpu::shim
