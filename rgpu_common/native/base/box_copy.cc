#include "rgpu_common/native/base/box_copy.h"

namespace rgpu::base {
namespace {

uint64_t Number(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

// One side of a copy as the program gives it.
struct Given {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  CUarray array;
  CUcontext context;
  size_t x, y, z, level;
  size_t pitch;  // 0: rows without gaps
  size_t rows;   // 0: slices without gaps
};

// Moves the address of linear memory to the first byte of the box. False: it overflows.
bool Advance(const Given& given, BoxSide* side) {
  uint64_t rows = 0;
  uint64_t offset = 0;
  return !__builtin_mul_overflow(given.z, side->rows, &rows) &&
         !__builtin_add_overflow(rows, given.y, &rows) &&
         !__builtin_mul_overflow(rows, side->pitch, &offset) &&
         !__builtin_add_overflow(offset, given.x, &offset) &&
         !__builtin_add_overflow(side->address, offset, &side->address);
}

CUresult SideOf(const Given& given, const BoxCopy& box, BoxSide* side) {
  side->type = given.type;
  side->context = given.context;
  if (given.level != 0) return CUDA_ERROR_INVALID_VALUE;
  switch (given.type) {
    case CU_MEMORYTYPE_ARRAY:
      side->array = given.array;
      side->x = given.x;
      side->y = given.y;
      side->z = given.z;
      return CUDA_SUCCESS;
    case CU_MEMORYTYPE_HOST:
      side->address = Number(given.host);
      break;
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
      side->address = given.device;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  uint64_t slice_end = 0;
  if (__builtin_add_overflow(given.y, box.height, &slice_end)) return CUDA_ERROR_INVALID_VALUE;
  side->pitch = given.pitch == 0 ? box.width : given.pitch;
  side->rows = given.rows == 0 ? box.height : given.rows;
  // NVIDIA's manual asks for a pitch of x + width bytes. Dr.Jit, which stops at every error, gives
  // a pitch of width and an x beyond it: x only moves the first byte.
  const bool narrow = given.pitch != 0 && given.pitch < box.width;
  // A single row has no pitch, whatever the program gives.
  const bool wide = given.pitch > kMaxPitch && (box.height > 1 || box.depth > 1);
  const bool low = given.rows != 0 && given.rows < slice_end;
  return narrow || wide || low || !Advance(given, side) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult Both(const Given& to, const Given& from, BoxCopy* box) {
  const CUresult result = SideOf(to, *box, &box->to);
  return result == CUDA_SUCCESS ? SideOf(from, *box, &box->from) : result;
}

template <typename Copy>
CUresult BoxOf3D(const Copy& copy, CUcontext to, CUcontext from, BoxCopy* box) {
  *box = {};
  box->width = copy.WidthInBytes;
  box->height = copy.Height;
  box->depth = copy.Depth;
  return Both({copy.dstMemoryType, copy.dstHost, copy.dstDevice, copy.dstArray, to,
               copy.dstXInBytes, copy.dstY, copy.dstZ, copy.dstLOD, copy.dstPitch, copy.dstHeight},
              {copy.srcMemoryType, copy.srcHost, copy.srcDevice, copy.srcArray, from,
               copy.srcXInBytes, copy.srcY, copy.srcZ, copy.srcLOD, copy.srcPitch, copy.srcHeight},
              box);
}

// A side of a copy of a batch, whose elements have `element` bytes.
CUresult OperandSide(const CUmemcpy3DOperand& operand, const CUextent3D& extent, uint32_t element,
                     const BoxCopy& box, BoxSide* side) {
  if (operand.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
    const auto& array = operand.op.array;
    *side = {};
    side->type = CU_MEMORYTYPE_ARRAY;
    side->array = array.array;
    side->y = array.offset.y;
    side->z = array.offset.z;
    return __builtin_mul_overflow(array.offset.x, uint64_t{element}, &side->x)
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_SUCCESS;
  }
  const auto& pointer = operand.op.ptr;
  uint64_t pitch = 0;
  if (__builtin_mul_overflow(pointer.rowLength, uint64_t{element}, &pitch)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool narrow = pointer.rowLength != 0 && pointer.rowLength < extent.width;
  if (narrow || pointer.ptr == 0) return CUDA_ERROR_INVALID_VALUE;
  return SideOf({CU_MEMORYTYPE_UNIFIED, nullptr, pointer.ptr, nullptr, nullptr, 0, 0, 0, 0, pitch,
                 pointer.layerHeight},
                box, side);
}

bool IsOperand(const CUmemcpy3DOperand& operand) {
  return operand.type == CU_MEMCPY_OPERAND_TYPE_POINTER ||
         operand.type == CU_MEMCPY_OPERAND_TYPE_ARRAY;
}

}  // namespace

bool BoxSide::Span(uint64_t width, uint64_t height, uint64_t depth, uint64_t* bytes) const {
  *bytes = 0;
  if (width == 0 || height == 0 || depth == 0) return true;
  if ((height > 1 && pitch < width) || (depth > 1 && (pitch < width || rows < height))) {
    return false;
  }
  uint64_t before = 0;
  return !__builtin_mul_overflow(depth - 1, rows, &before) &&
         !__builtin_add_overflow(before, height - 1, &before) &&
         !__builtin_mul_overflow(before, pitch, &before) &&
         !__builtin_add_overflow(before, width, bytes);
}

CUresult BoxOf(const CUDA_MEMCPY2D& copy, BoxCopy* box) {
  *box = {};
  box->width = copy.WidthInBytes;
  box->height = copy.Height;
  return Both({copy.dstMemoryType, copy.dstHost, copy.dstDevice, copy.dstArray, nullptr,
               copy.dstXInBytes, copy.dstY, 0, 0, copy.dstPitch, 0},
              {copy.srcMemoryType, copy.srcHost, copy.srcDevice, copy.srcArray, nullptr,
               copy.srcXInBytes, copy.srcY, 0, 0, copy.srcPitch, 0},
              box);
}

CUresult BoxOf(const CUDA_MEMCPY3D& copy, BoxCopy* box) {
  return BoxOf3D(copy, nullptr, nullptr, box);
}

CUresult BoxOf(const CUDA_MEMCPY3D_PEER& copy, BoxCopy* box) {
  return BoxOf3D(copy, copy.dstContext, copy.srcContext, box);
}

BoxSide ArraySide(CUarray array, uint64_t offset) {
  BoxSide side;
  side.type = CU_MEMORYTYPE_ARRAY;
  side.array = array;
  side.x = offset;
  return side;
}

BoxSide LinearSide(CUmemorytype type, uint64_t address, uint64_t bytes) {
  BoxSide side;
  side.type = type;
  side.address = address;
  side.pitch = bytes;
  side.rows = 1;
  return side;
}

CUresult BoxOf(const CUDA_MEMCPY3D_BATCH_OP& copy, const ArrayExtent* to_array,
               const ArrayExtent* from_array, BoxCopy* box) {
  *box = {};
  const CUextent3D& extent = copy.extent;
  const bool ordered = copy.srcAccessOrder >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM &&
                       copy.srcAccessOrder <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY &&
                       copy.flags <= CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
  if (!ordered || !IsOperand(copy.dst) || !IsOperand(copy.src)) return CUDA_ERROR_INVALID_VALUE;
  if (extent.width == 0 || extent.height == 0 || extent.depth == 0) return CUDA_ERROR_INVALID_VALUE;
  uint32_t element = 1;  // between pointers
  if (to_array != nullptr) element = to_array->element_bytes;
  if (from_array != nullptr) {
    if (to_array != nullptr && element != from_array->element_bytes) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    element = from_array->element_bytes;
  }
  if (__builtin_mul_overflow(extent.width, uint64_t{element}, &box->width)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  box->height = extent.height;
  box->depth = extent.depth;
  const CUresult result = OperandSide(copy.dst, extent, element, *box, &box->to);
  return result == CUDA_SUCCESS ? OperandSide(copy.src, extent, element, *box, &box->from) : result;
}

}  // namespace rgpu::base
