#include "rgpu_emu/device/graph_copy.h"

namespace rgpu::emu {
namespace {

struct Side {
  CUmemorytype type;
  uint64_t host;
  uint64_t device;
  uint64_t pitch;
  uint64_t height;
  uint64_t x;
  uint64_t y;
  uint64_t z;
};

struct Place {
  uint64_t address = 0;
  uint64_t step = 0;  // from slice to slice
  PointerKind required = PointerKind::kInvalid;
};

CUresult FindPointer(const Side& side, Place* place) {
  switch (side.type) {
    case CU_MEMORYTYPE_HOST:
      *place = {side.host, 0, PointerKind::kPageable};
      return CUDA_SUCCESS;
    case CU_MEMORYTYPE_DEVICE:
      *place = {side.device, 0, PointerKind::kDevice};
      return CUDA_SUCCESS;
    case CU_MEMORYTYPE_UNIFIED:
      *place = {side.device, 0, PointerKind::kInvalid};
      return CUDA_SUCCESS;
    case CU_MEMORYTYPE_ARRAY:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// Adds `count * step` to `*address`. Returns false if it passes the end of the address space.
bool Advance(uint64_t* address, uint64_t count, uint64_t step) {
  uint64_t bytes = 0;
  return !__builtin_mul_overflow(count, step, &bytes) &&
         !__builtin_add_overflow(*address, bytes, address);
}

// Finds the first byte of the side. Pitch 0 means rows without gaps, height 0 slices without gaps.
CUresult FindPlace(Side side, const CUDA_MEMCPY3D& copy, Place* place) {
  if (const CUresult bad = FindPointer(side, place); bad != CUDA_SUCCESS) return bad;
  uint64_t row_end = 0;
  uint64_t slice_end = 0;
  if (__builtin_add_overflow(side.x, copy.WidthInBytes, &row_end) ||
      __builtin_add_overflow(side.y, copy.Height, &slice_end))
    return CUDA_ERROR_INVALID_VALUE;
  const bool rows = copy.Height > 1 || copy.Depth > 1;
  if (rows && side.pitch != 0 && side.pitch < row_end) return CUDA_ERROR_INVALID_VALUE;
  if (copy.Depth > 1 && side.height != 0 && side.height < slice_end)
    return CUDA_ERROR_INVALID_VALUE;
  const uint64_t pitch = side.pitch == 0 ? copy.WidthInBytes : side.pitch;
  const uint64_t height = side.height == 0 ? copy.Height : side.height;
  if (__builtin_mul_overflow(pitch, height, &place->step)) return CUDA_ERROR_INVALID_VALUE;
  const bool found = Advance(&place->address, side.z, place->step) &&
                     Advance(&place->address, side.y, pitch) && Advance(&place->address, side.x, 1);
  return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Checks that the last slice exists too. The slices between lie within the same allocation.
CUresult CheckLast(const BoxPlan& plan, PointerKind dst, PointerKind src) {
  if (plan.depth <= 1) return CUDA_SUCCESS;
  const auto covers = [&](uint64_t first, uint64_t step, uint64_t pitch, PointerKind kind) {
    uint64_t slice = 0;
    uint64_t bytes = 0;
    return SpanOf(pitch, plan.slice.width, plan.slice.height, &slice) &&
           SpanOf(step, slice, plan.depth, &bytes) && KindOf(first, bytes) == kind;
  };
  CopyPlan last = plan.slice;
  const bool reached = Advance(&last.dst, plan.depth - 1, plan.dst_step) &&
                       Advance(&last.src, plan.depth - 1, plan.src_step);
  if (!reached) return CUDA_ERROR_INVALID_VALUE;
  const bool whole =
      covers(plan.slice.dst, plan.dst_step, plan.slice.dst_pitch, plan.slice.dst_kind) &&
      covers(plan.slice.src, plan.src_step, plan.slice.src_pitch, plan.slice.src_kind);
  return whole ? CheckPlan(&last, dst, src) : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult PlanBox(const CUDA_MEMCPY3D& copy, BoxPlan* plan) {
  Place dst;
  Place src;
  const Side to{copy.dstMemoryType, reinterpret_cast<uint64_t>(copy.dstHost),
                copy.dstDevice,     copy.dstPitch,
                copy.dstHeight,     copy.dstXInBytes,
                copy.dstY,          copy.dstZ};
  const Side from{copy.srcMemoryType, reinterpret_cast<uint64_t>(copy.srcHost),
                  copy.srcDevice,     copy.srcPitch,
                  copy.srcHeight,     copy.srcXInBytes,
                  copy.srcY,          copy.srcZ};
  CUresult result = FindPlace(to, copy, &dst);
  if (result == CUDA_SUCCESS) result = FindPlace(from, copy, &src);
  if (result != CUDA_SUCCESS) return result;
  CopyPlan& slice = plan->slice;
  slice.dst = dst.address;
  slice.src = src.address;
  slice.dst_pitch = copy.dstPitch == 0 ? copy.WidthInBytes : copy.dstPitch;
  slice.src_pitch = copy.srcPitch == 0 ? copy.WidthInBytes : copy.srcPitch;
  slice.width = copy.WidthInBytes;
  slice.height = copy.Depth == 0 ? 0 : copy.Height;
  plan->depth = copy.Depth;
  plan->dst_step = dst.step;
  plan->src_step = src.step;
  result = CheckPlan(&slice, dst.required, src.required);
  const bool none = slice.width == 0 || slice.height == 0;
  return result != CUDA_SUCCESS || none ? result : CheckLast(*plan, dst.required, src.required);
}

CUresult MoveBox(const BoxPlan& plan) {
  CopyPlan slice = plan.slice;
  if (slice.width == 0 || slice.height == 0) return CUDA_SUCCESS;
  for (uint64_t z = 0; z < plan.depth; ++z) {
    if (MoveBytes(slice) != CUDA_SUCCESS) return CUDA_ERROR_ILLEGAL_ADDRESS;
    slice.dst += plan.dst_step;
    slice.src += plan.src_step;
  }
  return CUDA_SUCCESS;
}

}  // namespace rgpu::emu
