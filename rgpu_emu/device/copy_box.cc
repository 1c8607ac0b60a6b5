#include "rgpu_emu/device/copy_box.h"

#include "rgpu_emu/device/array.h"
#include "rgpu_emu/device/device.h"

namespace rgpu::emu {
namespace {

// One side of a plan.
struct PlanSide {
  uint64_t address = 0;
  uint64_t pitch = 0;
  uint64_t slice = 0;
  bool array = false;
  PointerKind required = PointerKind::kInvalid;  // anything that exists
};

CUresult InArray(const base::BoxSide& side, const base::BoxCopy& box, PlanSide* plan) {
  const ArrayRef array = FindArray(side.array);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  base::ArrayExtent extent;
  // An array with planes is copied plane by plane.
  if (!base::ExtentOf(array->shape, &extent)) return CUDA_ERROR_INVALID_VALUE;
  if (!base::Holds(extent, {side.x, side.y, side.z, box.width, box.height, box.depth})) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const base::ArrayPart& part = array->part;
  plan->address = array->base() + side.z * part.slice_pitch + side.y * part.row_pitch + side.x;
  plan->pitch = part.row_pitch;
  plan->slice = part.slice_pitch;
  plan->array = true;
  return CUDA_SUCCESS;
}

CUresult Resolve(const base::BoxSide& side, const base::BoxCopy& box, PlanSide* plan) {
  if (side.is_array()) return InArray(side, box, plan);
  plan->address = side.address;
  plan->pitch = side.pitch;
  if (side.type == CU_MEMORYTYPE_HOST) plan->required = PointerKind::kPageable;
  if (side.type == CU_MEMORYTYPE_DEVICE) plan->required = PointerKind::kDevice;
  return __builtin_mul_overflow(side.pitch, side.rows, &plan->slice) && box.depth > 1
             ? CUDA_ERROR_INVALID_VALUE
             : CUDA_SUCCESS;
}

}  // namespace

CUresult PlanOf(const base::BoxCopy& box, CopyPlan* plan) {
  PlanSide to;
  PlanSide from;
  CUresult result = Resolve(box.to, box, &to);
  if (result == CUDA_SUCCESS) result = Resolve(box.from, box, &from);
  if (result != CUDA_SUCCESS) return result;
  *plan = {};
  plan->dst = to.address;
  plan->dst_pitch = to.pitch;
  plan->dst_slice = to.slice;
  plan->dst_array = to.array;
  plan->src = from.address;
  plan->src_pitch = from.pitch;
  plan->src_slice = from.slice;
  plan->src_array = from.array;
  plan->width = box.width;
  plan->height = box.height;
  plan->depth = box.depth;
  return CheckPlan(plan, to.required, from.required);
}

CUDA_MEMCPY3D ParamsOf(const base::BoxCopy& box) {
  CUDA_MEMCPY3D copy{};
  const base::BoxSide& to = box.to;
  copy.dstMemoryType = to.type;
  copy.dstHost = reinterpret_cast<void*>(to.address);
  copy.dstDevice = to.address;
  copy.dstArray = to.array;
  copy.dstPitch = to.pitch;
  copy.dstHeight = to.rows;
  copy.dstXInBytes = to.x;
  copy.dstY = to.y;
  copy.dstZ = to.z;
  const base::BoxSide& from = box.from;
  copy.srcMemoryType = from.type;
  copy.srcHost = reinterpret_cast<const void*>(from.address);
  copy.srcDevice = from.address;
  copy.srcArray = from.array;
  copy.srcPitch = from.pitch;
  copy.srcHeight = from.rows;
  copy.srcXInBytes = from.x;
  copy.srcY = from.y;
  copy.srcZ = from.z;
  copy.WidthInBytes = box.width;
  copy.Height = box.height;
  copy.Depth = box.depth;
  return copy;
}

}  // namespace rgpu::emu
