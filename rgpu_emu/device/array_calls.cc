// Calls cuArray* and cuMipmappedArray*.
#include "rgpu_emu/device/array.h"
#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/memory.h"

namespace rgpu::emu {
namespace {

CUresult Create(const CUDA_ARRAY3D_DESCRIPTOR& shape, uint32_t levels, ArrayRef* made) {
  std::shared_ptr<Context> context;
  CUresult result = CurrentContext(&context);
  if (result == CUDA_SUCCESS) result = CheckDeviceArray(shape, levels);
  if (result != CUDA_SUCCESS) return result;
  auto array = std::make_shared<Array>();
  if (!base::LayOut(shape, levels, &array->layout)) return CUDA_ERROR_OUT_OF_MEMORY;
  array->memory = AllocateHard(array->layout.bytes, context->handle);
  if (array->memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  TheDevice().arena.Hide(array->memory);
  array->shape = shape;
  array->levels = levels;
  array->context = context->handle;
  array->part = array->layout.parts[0];
  *made = std::move(array);
  return CUDA_SUCCESS;
}

CUresult CreateArray(CUarray* handle, const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  ArrayRef array;
  const CUresult result = Create(shape, 1, &array);
  if (result != CUDA_SUCCESS) return result;
  const uint64_t value = NewHandle(HandleKind::kArray);
  TheDevice().arrays.Add(value, std::move(array));
  *handle = As<CUarray>(value);
  return CUDA_SUCCESS;
}

// The program can name the array no more. Its memory is freed when the work issued before is done.
CUresult Destroy(HandleTable<Array>& table, uint64_t handle) {
  std::shared_ptr<Context> context;
  if (const CUresult bad = CurrentContext(&context); bad != CUDA_SUCCESS) return bad;
  const ArrayRef found = table.Find(handle);
  if (found == nullptr || !found->whole) return CUDA_ERROR_INVALID_HANDLE;
  const ArrayRef array = table.Remove(handle);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  {
    const std::lock_guard lock(array->mutex);
    for (const uint64_t part : array->parts) {
      if (part != 0) TheDevice().arrays.Remove(part);
    }
  }
  FreeHidden(*context, array->memory);
  return CUDA_SUCCESS;
}

// Returns the handle of a level or plane, the same one each time.
CUarray PartHandle(Array& whole, uint32_t index, const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  const std::lock_guard lock(whole.mutex);
  uint64_t& handle = whole.parts[index];
  if (handle != 0) return As<CUarray>(handle);
  auto part = std::make_shared<Array>();
  part->shape = shape;
  part->context = whole.context;
  part->memory = whole.memory;
  part->part = whole.layout.parts[index];
  part->whole = false;
  handle = NewHandle(HandleKind::kArray);
  TheDevice().arrays.Add(handle, std::move(part));
  return As<CUarray>(handle);
}

// Calls that describe an array need a context, and no array has what some of them describe.
CUresult Describe(const ArrayRef& array) {
  std::shared_ptr<Context> context;
  if (const CUresult bad = CurrentContext(&context); bad != CUDA_SUCCESS) return bad;
  return array == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult DescribeNothing(const ArrayRef& array) {
  const CUresult result = Describe(array);
  return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : result;
}

}  // namespace

CUresult cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* pAllocateArray) {
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  shape.Width = pAllocateArray->Width;
  shape.Height = pAllocateArray->Height;
  shape.Format = pAllocateArray->Format;
  shape.NumChannels = pAllocateArray->NumChannels;
  return CreateArray(pHandle, shape);
}

CUresult cuArray3DCreate_v2(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray) {
  return CreateArray(pHandle, *pAllocateArray);
}

CUresult cuArrayDestroy(CUarray hArray) { return Destroy(TheDevice().arrays, Raw(hArray)); }

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
  const ArrayRef array = FindArray(hArray);
  if (const CUresult bad = Describe(array); bad != CUDA_SUCCESS) return bad;
  const CUDA_ARRAY3D_DESCRIPTOR& shape = array->shape;
  *pArrayDescriptor = {shape.Width, shape.Height, shape.Format, shape.NumChannels};
  return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
  const ArrayRef array = FindArray(hArray);
  if (const CUresult bad = Describe(array); bad != CUDA_SUCCESS) return bad;
  *pArrayDescriptor = array->shape;
  return CUDA_SUCCESS;
}

// cuda.h: CUDA_ERROR_INVALID_VALUE for an array that is not sparse, or not mapped later. There are
// no others.
CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*, CUarray array) {
  return DescribeNothing(FindArray(array));
}

CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*,
                                             CUmipmappedArray mipmap) {
  return DescribeNothing(FindMipmappedArray(mipmap));
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS*, CUarray array, CUdevice) {
  return DescribeNothing(FindArray(array));
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS*,
                                               CUmipmappedArray mipmap, CUdevice) {
  return DescribeNothing(FindMipmappedArray(mipmap));
}

CUresult cuArrayGetPlane(CUarray* pPlaneArray, CUarray hArray, unsigned int planeIdx) {
  const ArrayRef array = FindArray(hArray);
  if (const CUresult bad = Describe(array); bad != CUDA_SUCCESS) return bad;
  if (planeIdx >= base::PlanesOf(array->shape.Format).size()) return CUDA_ERROR_INVALID_VALUE;
  *pPlaneArray = PartHandle(*array, planeIdx, base::PlaneOf(array->shape, planeIdx));
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* pHandle,
                                const CUDA_ARRAY3D_DESCRIPTOR* pMipmappedArrayDesc,
                                unsigned int numMipmapLevels) {
  ArrayRef array;
  const CUresult result = Create(*pMipmappedArrayDesc, numMipmapLevels, &array);
  if (result != CUDA_SUCCESS) return result;
  array->mipmapped = true;
  const uint64_t value = NewHandle(HandleKind::kMipmappedArray);
  TheDevice().mipmapped_arrays.Add(value, std::move(array));
  *pHandle = As<CUmipmappedArray>(value);
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetLevel(CUarray* pLevelArray, CUmipmappedArray hMipmappedArray,
                                  unsigned int level) {
  const ArrayRef array = FindMipmappedArray(hMipmappedArray);
  if (const CUresult bad = Describe(array); bad != CUDA_SUCCESS) return bad;
  if (level >= array->levels) return CUDA_ERROR_INVALID_VALUE;
  *pLevelArray = PartHandle(*array, level, base::LevelOf(array->shape, level));
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
  return Destroy(TheDevice().mipmapped_arrays, Raw(hMipmappedArray));
}

}  // namespace rgpu::emu
