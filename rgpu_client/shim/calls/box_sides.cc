#include "rgpu_client/shim/calls/box_sides.h"

#include <algorithm>

namespace rgpu::shim {
namespace {

CUresult ArraySideOf(const base::BoxSide& from, const base::BoxCopy& box, Side* side) {
  const Array* array = FindArray(from.array);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!base::PlanesOf(array->shape.Format).empty()) return CUDA_ERROR_INVALID_VALUE;
  base::ArrayExtent extent;
  const bool known = base::ExtentOf(array->shape, &extent);
  if (known && !base::Holds(extent, {from.x, from.y, from.z, box.width, box.height, box.depth})) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  side->device = true;
  side->array = array->id;
  side->x = from.x;
  side->y = from.y;
  side->z = from.z;
  return CUDA_SUCCESS;
}

CUresult SideOf(const base::BoxSide& from, const base::BoxCopy& box, Side* side) {
  if (from.is_array()) return ArraySideOf(from, box, side);
  side->address = from.address;
  side->pitch = from.pitch;
  side->rows = from.rows;
  side->device = from.type == CU_MEMORYTYPE_DEVICE ||
                 (from.type == CU_MEMORYTYPE_UNIFIED &&
                  SessionOfAddress(from.address)->IsDeviceAddress(from.address));
  return CUDA_SUCCESS;
}

CUmemorytype TypeOf(const Side& side) {
  if (side.array != 0) return CU_MEMORYTYPE_ARRAY;
  return side.device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
}

}  // namespace

Array* FindArray(CUarray handle) {
  return SessionOf(HandleValue(handle))->handles().Find<Array>(HandleValue(handle));
}

CUresult CopyOf(const base::BoxCopy& box, bool synchronous, Copy* copy) {
  *copy = {};
  copy->width = box.width;
  copy->height = box.height;
  copy->depth = box.depth;
  copy->synchronous = synchronous;
  const CUresult status = SideOf(box.to, box, &copy->to);
  return status == CUDA_SUCCESS ? SideOf(box.from, box, &copy->from) : status;
}

CUresult CopyOfNode(const Here& here, const CUDA_MEMCPY3D& node, Copy* copy) {
  CUDA_MEMCPY3D params = node;
  params.Height = std::max<size_t>(node.Height, 1);
  params.Depth = std::max<size_t>(node.Depth, 1);
  base::BoxCopy box;
  CUresult status = base::BoxOf(params, &box);
  if (status == CUDA_SUCCESS && box.empty()) status = CUDA_ERROR_INVALID_VALUE;
  if (status == CUDA_SUCCESS) status = CopyOf(box, false, copy);
  if (status == CUDA_SUCCESS) NamePinnedSides(copy);
  if (status == CUDA_SUCCESS) status = CheckSides(here, *copy);
  if (status == CUDA_SUCCESS) *copy = Flattened(*copy);
  return status;
}

CUDA_MEMCPY3D NodeOf(const Copy& copy) {
  CUDA_MEMCPY3D node{};
  node.dstMemoryType = TypeOf(copy.to);
  node.dstDevice = copy.to.device ? copy.to.address : 0;
  node.dstHost = copy.to.device ? nullptr : reinterpret_cast<void*>(copy.to.address);
  node.dstArray = MakeHandle<CUarray>(copy.to.array);
  node.dstPitch = copy.to.pitch;
  node.dstHeight = copy.depth > 1 ? copy.to.rows : copy.height;
  node.dstXInBytes = copy.to.x;
  node.dstY = copy.to.y;
  node.dstZ = copy.to.z;
  node.srcMemoryType = TypeOf(copy.from);
  node.srcDevice = copy.from.device ? copy.from.address : 0;
  node.srcHost = copy.from.device ? nullptr : reinterpret_cast<void*>(copy.from.address);
  node.srcArray = MakeHandle<CUarray>(copy.from.array);
  node.srcPitch = copy.from.pitch;
  node.srcHeight = copy.depth > 1 ? copy.from.rows : copy.height;
  node.srcXInBytes = copy.from.x;
  node.srcY = copy.from.y;
  node.srcZ = copy.from.z;
  node.WidthInBytes = copy.width;
  node.Height = copy.height;
  node.Depth = copy.depth;
  return node;
}

}  // namespace rgpu::shim
