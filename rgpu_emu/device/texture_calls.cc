// Calls cuTexObject*, cuSurfObject* and cuTensorMap*.
#include "rgpu_emu/device/attributes.h"
#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/reason.h"

namespace rgpu::emu {
namespace {

CUresult NeedContext(uint64_t* handle) {
  std::shared_ptr<Context> context;
  const CUresult result = CurrentContext(&context);
  if (result == CUDA_SUCCESS) *handle = context->handle;
  return result;
}

CUresult Publish(HandleTable<TextureObject>& table, std::unique_ptr<TextureState> state,
                 std::shared_ptr<TextureObject> object, uint64_t* value) {
  ReapTextures();
  const uint64_t published = PublishTexture(std::move(state));
  if (published == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  table.Add(published, std::move(object));
  *value = published;
  return CUDA_SUCCESS;
}

CUresult Destroy(HandleTable<TextureObject>& table, uint64_t object) {
  uint64_t context = 0;
  if (const CUresult bad = NeedContext(&context); bad != CUDA_SUCCESS) return bad;
  if (table.Remove(object) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  RetireTexture(object);
  ReapTextures();
  return CUDA_SUCCESS;
}

// Finds the object whose description the program asks for.
CUresult Find(const HandleTable<TextureObject>& table, uint64_t object,
              std::shared_ptr<TextureObject>* found) {
  uint64_t context = 0;
  if (const CUresult bad = NeedContext(&context); bad != CUDA_SUCCESS) return bad;
  *found = table.Find(object);
  return *found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED is 0.
CUresult NoTensorMaps() {
  NoteReason(
      "the emulated device has compute capability 8.0; tensor maps need a device of 9.0 or newer");
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

CUresult cuTexObjectCreate(CUtexObject* pTexObject, const CUDA_RESOURCE_DESC* pResDesc,
                           const CUDA_TEXTURE_DESC* pTexDesc,
                           const CUDA_RESOURCE_VIEW_DESC* pResViewDesc) {
  auto object = std::make_shared<TextureObject>();
  CUresult result = NeedContext(&object->context);
  auto state = std::make_unique<TextureState>();
  if (result == CUDA_SUCCESS) {
    result = TextureStateOf(*pResDesc, *pTexDesc, pResViewDesc, state.get());
  }
  if (result != CUDA_SUCCESS) return result;
  object->resource = *pResDesc;
  object->texture = *pTexDesc;
  object->has_view = pResViewDesc != nullptr;
  if (object->has_view) object->view = *pResViewDesc;
  uint64_t value = 0;
  result = Publish(TheDevice().textures, std::move(state), std::move(object), &value);
  if (result == CUDA_SUCCESS) *pTexObject = value;
  return result;
}

CUresult cuTexObjectDestroy(CUtexObject texObject) {
  return Destroy(TheDevice().textures, texObject);
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc, CUtexObject texObject) {
  std::shared_ptr<TextureObject> object;
  const CUresult result = Find(TheDevice().textures, texObject, &object);
  if (result == CUDA_SUCCESS) *pResDesc = object->resource;
  return result;
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* pTexDesc, CUtexObject texObject) {
  std::shared_ptr<TextureObject> object;
  const CUresult result = Find(TheDevice().textures, texObject, &object);
  if (result == CUDA_SUCCESS) *pTexDesc = object->texture;
  return result;
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* pResViewDesc,
                                        CUtexObject texObject) {
  std::shared_ptr<TextureObject> object;
  const CUresult result = Find(TheDevice().textures, texObject, &object);
  if (result != CUDA_SUCCESS) return result;
  if (!object->has_view) return CUDA_ERROR_INVALID_VALUE;
  *pResViewDesc = object->view;
  return CUDA_SUCCESS;
}

CUresult cuSurfObjectCreate(CUsurfObject* pSurfObject, const CUDA_RESOURCE_DESC* pResDesc) {
  auto object = std::make_shared<TextureObject>();
  CUresult result = NeedContext(&object->context);
  auto state = std::make_unique<TextureState>();
  if (result == CUDA_SUCCESS) result = SurfaceStateOf(*pResDesc, state.get());
  if (result != CUDA_SUCCESS) return result;
  object->resource = *pResDesc;
  uint64_t value = 0;
  result = Publish(TheDevice().surfaces, std::move(state), std::move(object), &value);
  if (result == CUDA_SUCCESS) *pSurfObject = value;
  return result;
}

CUresult cuSurfObjectDestroy(CUsurfObject surfObject) {
  return Destroy(TheDevice().surfaces, surfObject);
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc, CUsurfObject surfObject) {
  std::shared_ptr<TextureObject> object;
  const CUresult result = Find(TheDevice().surfaces, surfObject, &object);
  if (result == CUDA_SUCCESS) *pResDesc = object->resource;
  return result;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  return NoTensorMaps();
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                 const cuuint64_t*, const cuuint64_t*, const int*, const int*,
                                 cuuint32_t, cuuint32_t, const cuuint32_t*, CUtensorMapInterleave,
                                 CUtensorMapSwizzle, CUtensorMapL2promotion,
                                 CUtensorMapFloatOOBfill) {
  return NoTensorMaps();
}

CUresult cuTensorMapEncodeIm2colWide(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                     const cuuint64_t*, const cuuint64_t*, int, int, cuuint32_t,
                                     cuuint32_t, const cuuint32_t*, CUtensorMapInterleave,
                                     CUtensorMapIm2ColWideMode, CUtensorMapSwizzle,
                                     CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  return NoTensorMaps();
}

CUresult cuTensorMapReplaceAddress(CUtensorMap*, void*) { return NoTensorMaps(); }

// The width is the same for all formats.
CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t* maxWidthInElements, CUarray_format,
                                            unsigned numChannels, CUdevice) {
  const bool channels = numChannels == 1 || numChannels == 2 || numChannels == 4;
  if (!channels) return CUDA_ERROR_INVALID_VALUE;
  int width = 0;
  DeviceAttribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH, &width);
  *maxWidthInElements = static_cast<size_t>(width);
  return CUDA_SUCCESS;
}

}  // namespace rgpu::emu
