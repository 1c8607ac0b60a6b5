#include "rgpu_server/executor/boxes.h"

#include "rgpu_common/native/base/array_shape.h"

namespace rgpu::exec {

namespace {

// Like the rows, but of the portion only.
Rows PortionRows(const Rows& rows, const Portion& portion) {
  Rows part = rows;
  part.address = portion.address;
  part.width = portion.width;
  part.height = portion.height;
  part.depth = portion.depth;
  part.place = portion.place;
  return part;
}

CUDA_MEMCPY3D SizeOf(const Portion& portion) {
  CUDA_MEMCPY3D params{};
  params.WidthInBytes = portion.width;
  params.Height = portion.height;
  params.Depth = portion.depth;
  return params;
}

}  // namespace

CUresult PlaceIn(const Array& array, Rows* rows) {
  const ArrayPlace& place = rows->place;
  if (!base::PlanesOf(array.shape.Format).empty()) return CUDA_ERROR_INVALID_VALUE;
  base::ArrayExtent extent;
  // The driver checks arrays whose elements are not known here.
  if (base::ExtentOf(array.shape, &extent) &&
      !base::Holds(extent, {place.x, place.y, place.z, rows->width, rows->height, rows->depth})) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  rows->address = 0;
  rows->pitch = 0;
  rows->rows = 0;
  rows->place.array = array.handle;
  return CUDA_SUCCESS;
}

CUresult FindArray(Executor& executor, uint64_t id, Rows* rows) {
  if (id == 0) {
    const ArrayPlace& place = rows->place;
    const bool linear = place.x == 0 && place.y == 0 && place.z == 0;
    return linear ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  Array* array = nullptr;
  const CUresult result = executor.objects().arrays.Find(id, &array);
  return result == CUDA_SUCCESS ? PlaceIn(*array, rows) : result;
}

CUDA_MEMCPY3D ParamsIn(const Rows& rows, const Portion& portion, const uint8_t* from) {
  CUDA_MEMCPY3D params = SizeOf(portion);
  params.srcMemoryType = CU_MEMORYTYPE_HOST;
  params.srcHost = from;
  params.srcPitch = portion.width;
  params.srcHeight = portion.height;
  SetTarget(PortionRows(rows, portion), &params);
  return params;
}

CUDA_MEMCPY3D ParamsOut(const Rows& rows, const Portion& portion, uint8_t* to) {
  CUDA_MEMCPY3D params = SizeOf(portion);
  params.dstMemoryType = CU_MEMORYTYPE_HOST;
  params.dstHost = to;
  params.dstPitch = portion.width;
  params.dstHeight = portion.height;
  SetSource(PortionRows(rows, portion), &params);
  return params;
}

}  // namespace rgpu::exec
