// Texture and surface objects. The worker's driver checks the descriptions.
#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/here.h"

namespace rgpu::shim {
namespace {

// Sets the fields of the resource. CUDA_ERROR_INVALID_VALUE: it names no array or memory of the
// program.
CUresult SetResource(const Here& here, const CUDA_RESOURCE_DESC& resource,
                     rgpuTextureCreate_Request* request) {
  HandleTable& handles = here.session->handles();
  request->kind = static_cast<uint32_t>(resource.resType);
  if (resource.flags != 0) return CUDA_ERROR_INVALID_VALUE;
  switch (resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY: {
      request->array = HandleValue(resource.res.array.hArray);
      const bool known = handles.Find<Array>(request->array) != nullptr;
      return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY: {
      request->mipmap = HandleValue(resource.res.mipmap.hMipmappedArray);
      const bool known = handles.Find<MipmappedArray>(request->mipmap) != nullptr;
      return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    case CU_RESOURCE_TYPE_LINEAR: {
      const auto& linear = resource.res.linear;
      request->dptr = linear.devPtr;
      request->format = static_cast<uint32_t>(linear.format);
      request->channels = linear.numChannels;
      request->bytes = linear.sizeInBytes;
      return CUDA_SUCCESS;
    }
    case CU_RESOURCE_TYPE_PITCH2D: {
      const auto& plane = resource.res.pitch2D;
      request->dptr = plane.devPtr;
      request->format = static_cast<uint32_t>(plane.format);
      request->channels = plane.numChannels;
      request->width = plane.width;
      request->height = plane.height;
      request->pitch = plane.pitchInBytes;
      return CUDA_SUCCESS;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

void SetTexture(const CUDA_TEXTURE_DESC& texture, rgpuTextureCreate_Request* request) {
  request->address0 = static_cast<uint32_t>(texture.addressMode[0]);
  request->address1 = static_cast<uint32_t>(texture.addressMode[1]);
  request->address2 = static_cast<uint32_t>(texture.addressMode[2]);
  request->filter = static_cast<uint32_t>(texture.filterMode);
  request->flags = texture.flags;
  request->anisotropy = texture.maxAnisotropy;
  request->mip_filter = static_cast<uint32_t>(texture.mipmapFilterMode);
  request->bias = texture.mipmapLevelBias;
  request->min_level = texture.minMipmapLevelClamp;
  request->max_level = texture.maxMipmapLevelClamp;
  request->border0 = texture.borderColor[0];
  request->border1 = texture.borderColor[1];
  request->border2 = texture.borderColor[2];
  request->border3 = texture.borderColor[3];
}

void SetView(const CUDA_RESOURCE_VIEW_DESC& view, rgpuTextureCreate_Request* request) {
  request->views = 1;
  request->view_format = static_cast<uint32_t>(view.format);
  request->view_width = view.width;
  request->view_height = view.height;
  request->view_depth = view.depth;
  request->first_level = view.firstMipmapLevel;
  request->last_level = view.lastMipmapLevel;
  request->first_layer = view.firstLayer;
  request->last_layer = view.lastLayer;
}

// Remembers what the program said. A server that gives a value twice is faulty or hostile.
CUresult Remember(const Here& here, uint64_t value, TextureObject object) {
  object.context = here.context_id();
  if (here.session->textures().Add(value, object)) return CUDA_SUCCESS;
  here.channel().SetSticky(CUDA_ERROR_EXTERNAL_DEVICE,
                           "the server gave a texture or surface object that is in use");
  return CUDA_ERROR_EXTERNAL_DEVICE;
}

CUresult Find(uint64_t value, bool surface, TextureObject* object) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  const auto found = here.session->textures().Find(value, surface);
  if (!found) return CUDA_ERROR_INVALID_VALUE;
  *object = *found;
  return CUDA_SUCCESS;
}

template <typename Op>
CUresult Destroy(uint64_t value, bool surface) {
  Here here = AnyHere();
  const auto object = here.session->textures().Take(value, surface);
  if (!object) return CUDA_ERROR_INVALID_VALUE;
  here.context = here.session->handles().Find<Context>(object->context);
  if (here.context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return here.channel().Post<Op>(here.issuer(), {value});
}

}  // namespace

CUresult cuTexObjectCreate(CUtexObject* pTexObject, const CUDA_RESOURCE_DESC* pResDesc,
                           const CUDA_TEXTURE_DESC* pTexDesc,
                           const CUDA_RESOURCE_VIEW_DESC* pResViewDesc) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  rgpuTextureCreate_Request request;
  CUresult status = SetResource(here, *pResDesc, &request);
  if (status != CUDA_SUCCESS) return status;
  SetTexture(*pTexDesc, &request);
  TextureObject object;
  object.resource = *pResDesc;
  object.texture = *pTexDesc;
  object.has_view = pResViewDesc != nullptr;
  if (object.has_view) object.view = *pResViewDesc;
  if (object.has_view) SetView(object.view, &request);
  rgpuTextureCreate_Reply reply;
  status = here.channel().Call<op_rgpuTextureCreate>(here.issuer(), request, &reply);
  if (status == CUDA_SUCCESS) status = Remember(here, reply.texture, object);
  if (status == CUDA_SUCCESS) *pTexObject = reply.texture;
  return status;
}

CUresult cuTexObjectDestroy(CUtexObject texObject) {
  return Destroy<op_rgpuTextureDestroy>(texObject, false);
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc, CUtexObject texObject) {
  TextureObject object;
  const CUresult status = Find(texObject, false, &object);
  if (status == CUDA_SUCCESS) *pResDesc = object.resource;
  return status;
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* pTexDesc, CUtexObject texObject) {
  TextureObject object;
  const CUresult status = Find(texObject, false, &object);
  if (status == CUDA_SUCCESS) *pTexDesc = object.texture;
  return status;
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* pResViewDesc,
                                        CUtexObject texObject) {
  TextureObject object;
  const CUresult status = Find(texObject, false, &object);
  if (status != CUDA_SUCCESS) return status;
  if (!object.has_view) return CUDA_ERROR_INVALID_VALUE;
  *pResViewDesc = object.view;
  return CUDA_SUCCESS;
}

CUresult cuSurfObjectCreate(CUsurfObject* pSurfObject, const CUDA_RESOURCE_DESC* pResDesc) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  const uint64_t array = HandleValue(pResDesc->res.array.hArray);
  const bool valid = pResDesc->resType == CU_RESOURCE_TYPE_ARRAY && pResDesc->flags == 0 &&
                     here.session->handles().Find<Array>(array) != nullptr;
  if (!valid) return CUDA_ERROR_INVALID_VALUE;
  TextureObject object;
  object.surface = true;
  object.resource = *pResDesc;
  rgpuSurfaceCreate_Reply reply;
  CUresult status = here.channel().Call<op_rgpuSurfaceCreate>(here.issuer(), {array}, &reply);
  if (status == CUDA_SUCCESS) status = Remember(here, reply.surface, object);
  if (status == CUDA_SUCCESS) *pSurfObject = reply.surface;
  return status;
}

CUresult cuSurfObjectDestroy(CUsurfObject surfObject) {
  return Destroy<op_rgpuSurfaceDestroy>(surfObject, true);
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc, CUsurfObject surfObject) {
  TextureObject object;
  const CUresult status = Find(surfObject, true, &object);
  if (status == CUDA_SUCCESS) *pResDesc = object.resource;
  return status;
}

}  // namespace rgpu::shim
