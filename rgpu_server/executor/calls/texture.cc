// Handlers: texture and surface objects. A kernel that has the value of one reads whatever the
// object names, so arrays and memory of the session only may be named.
#include "gen/dispatch.gen.h"
#include "rgpu_common/native/base/array_shape.h"
#include "rgpu_server/executor/executor.h"

namespace rgpu::exec {

namespace {

CUresult FindHandle(Executor& executor, uint64_t id, CUarray* handle) {
  Array* array = nullptr;
  const CUresult result = executor.objects().arrays.Find(id, &array);
  if (result == CUDA_SUCCESS) *handle = array->handle;
  return result;
}

CUresult FindHandle(Executor& executor, uint64_t id, CUmipmappedArray* handle) {
  MipmappedArray* array = nullptr;
  const CUresult result = executor.objects().mipmapped_arrays.Find(id, &array);
  if (result == CUDA_SUCCESS) *handle = array->handle;
  return result;
}

CUresult ResourceOf(Executor& executor, const rgpuTextureCreate_Request& request,
                    CUDA_RESOURCE_DESC* resource) {
  resource->resType = static_cast<CUresourcetype>(request.kind);
  auto& named = resource->res;
  const Ranges& ranges = executor.objects().ranges;
  switch (resource->resType) {
    case CU_RESOURCE_TYPE_ARRAY:
      return FindHandle(executor, request.array, &named.array.hArray);
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      return FindHandle(executor, request.mipmap, &named.mipmap.hMipmappedArray);
    case CU_RESOURCE_TYPE_LINEAR:
      named.linear.devPtr = request.dptr;
      named.linear.format = static_cast<CUarray_format>(request.format);
      named.linear.numChannels = request.channels;
      named.linear.sizeInBytes = request.bytes;
      return ranges.Check(request.dptr, request.bytes);
    case CU_RESOURCE_TYPE_PITCH2D: {
      named.pitch2D.devPtr = request.dptr;
      named.pitch2D.format = static_cast<CUarray_format>(request.format);
      named.pitch2D.numChannels = request.channels;
      named.pitch2D.width = request.width;
      named.pitch2D.height = request.height;
      named.pitch2D.pitchInBytes = request.pitch;
      const uint64_t element = base::ElementBytes(named.pitch2D.format, named.pitch2D.numChannels);
      uint64_t width = 0;
      if (element == 0 || __builtin_mul_overflow(request.width, element, &width)) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      return ranges.CheckRows(request.dptr, request.pitch, width, request.height);
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUDA_TEXTURE_DESC TextureOf(const rgpuTextureCreate_Request& request) {
  CUDA_TEXTURE_DESC texture{};
  texture.addressMode[0] = static_cast<CUaddress_mode>(request.address0);
  texture.addressMode[1] = static_cast<CUaddress_mode>(request.address1);
  texture.addressMode[2] = static_cast<CUaddress_mode>(request.address2);
  texture.filterMode = static_cast<CUfilter_mode>(request.filter);
  texture.flags = request.flags;
  texture.maxAnisotropy = request.anisotropy;
  texture.mipmapFilterMode = static_cast<CUfilter_mode>(request.mip_filter);
  texture.mipmapLevelBias = request.bias;
  texture.minMipmapLevelClamp = request.min_level;
  texture.maxMipmapLevelClamp = request.max_level;
  texture.borderColor[0] = request.border0;
  texture.borderColor[1] = request.border1;
  texture.borderColor[2] = request.border2;
  texture.borderColor[3] = request.border3;
  return texture;
}

CUDA_RESOURCE_VIEW_DESC ViewOf(const rgpuTextureCreate_Request& request) {
  CUDA_RESOURCE_VIEW_DESC view{};
  view.format = static_cast<CUresourceViewFormat>(request.view_format);
  view.width = request.view_width;
  view.height = request.view_height;
  view.depth = request.view_depth;
  view.firstMipmapLevel = request.first_level;
  view.lastMipmapLevel = request.last_level;
  view.firstLayer = request.first_layer;
  view.lastLayer = request.last_layer;
  return view;
}

// Adds an object by its value. The driver never gives a value that is in use.
void Add(Table<Texture>& table, uint64_t value, uint32_t context) {
  auto texture = std::make_shared<Texture>();
  texture->context = context;
  table.Add(value, std::move(texture));
}

// Destroys the object when the work of its context is complete. It counts as a handle until then:
// else a client could fill the worker with objects that wait for a stream.
CUresult Destroy(Executor& executor, Table<Texture>& table, uint64_t value,
                 std::function<void()> destroy) {
  std::shared_ptr<Texture> texture;
  std::shared_ptr<Context> context;
  CUresult result = table.Take(value, &texture);
  if (result != CUDA_SUCCESS) return result;
  result = executor.objects().contexts.Share(texture->context, &context);
  if (result == CUDA_SUCCESS && context->closing) result = CUDA_ERROR_INVALID_CONTEXT;
  if (result == CUDA_SUCCESS) result = executor.MakeCurrent(*context);
  if (result != CUDA_SUCCESS) return result;
  ++g_handles;
  executor.reaper().Add(context, std::move(destroy), [] { --g_handles; });
  return CUDA_SUCCESS;
}

}  // namespace

CUresult Run(Executor& executor, const Command& command, const rgpuTextureCreate_Request& request,
             rgpuTextureCreate_Reply* reply) {
  std::shared_ptr<Context> context;
  CUDA_RESOURCE_DESC resource{};
  CUresult result = executor.Enter(command, &context);
  if (result == CUDA_SUCCESS) result = ResourceOf(executor, request, &resource);
  if (result != CUDA_SUCCESS) return result;
  if (Ranges::full()) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUDA_TEXTURE_DESC texture = TextureOf(request);
  const CUDA_RESOURCE_VIEW_DESC view = ViewOf(request);
  CUtexObject made = 0;
  result = executor.driver()->cuTexObjectCreate(&made, &resource, &texture,
                                                request.views != 0 ? &view : nullptr);
  if (result != CUDA_SUCCESS) return result;
  Add(executor.objects().textures, made, context->id);
  reply->texture = made;
  return CUDA_SUCCESS;
}

CUresult Run(Executor& executor, const Command&, const rgpuTextureDestroy_Request& request,
             rgpuTextureDestroy_Reply*) {
  const Driver& driver = executor.driver();
  return Destroy(executor, executor.objects().textures, request.texture,
                 [&driver, object = request.texture] { driver->cuTexObjectDestroy(object); });
}

CUresult Run(Executor& executor, const Command& command, const rgpuSurfaceCreate_Request& request,
             rgpuSurfaceCreate_Reply* reply) {
  std::shared_ptr<Context> context;
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  CUresult result = executor.Enter(command, &context);
  if (result == CUDA_SUCCESS) {
    result = FindHandle(executor, request.array, &resource.res.array.hArray);
  }
  if (result != CUDA_SUCCESS) return result;
  if (Ranges::full()) return CUDA_ERROR_OUT_OF_MEMORY;
  CUsurfObject made = 0;
  result = executor.driver()->cuSurfObjectCreate(&made, &resource);
  if (result != CUDA_SUCCESS) return result;
  Add(executor.objects().surfaces, made, context->id);
  reply->surface = made;
  return CUDA_SUCCESS;
}

CUresult Run(Executor& executor, const Command&, const rgpuSurfaceDestroy_Request& request,
             rgpuSurfaceDestroy_Reply*) {
  const Driver& driver = executor.driver();
  return Destroy(executor, executor.objects().surfaces, request.surface,
                 [&driver, object = request.surface] { driver->cuSurfObjectDestroy(object); });
}

}  // namespace rgpu::exec
