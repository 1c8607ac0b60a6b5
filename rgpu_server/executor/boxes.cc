#include "rgpu_server/executor/boxes.h"

#include "rgpu_common/native/base/array_shape.h"

namespace rgpu::exec {

CUresult FindArray(Executor& executor, uint64_t id, Rows* rows) {
  const ArrayPlace& place = rows->place;
  if (id == 0) {
    const bool linear = place.x == 0 && place.y == 0 && place.z == 0;
    return linear ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  Array* array = nullptr;
  const CUresult result = executor.objects().arrays.Find(id, &array);
  if (result != CUDA_SUCCESS) return result;
  if (!base::PlanesOf(array->shape.Format).empty()) return CUDA_ERROR_INVALID_VALUE;
  base::ArrayExtent extent;
  // The driver checks arrays whose elements are not known here.
  if (base::ExtentOf(array->shape, &extent) &&
      !base::Holds(extent, {place.x, place.y, place.z, rows->width, rows->height, rows->depth})) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  rows->address = 0;
  rows->pitch = 0;
  rows->rows = 0;
  rows->place.array = array->handle;
  return CUDA_SUCCESS;
}

}  // namespace rgpu::exec
