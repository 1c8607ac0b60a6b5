// CUDA arrays and mipmapped arrays.
#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/here.h"
#include "rgpu_common/native/base/array_shape.h"

namespace rgpu::shim {
namespace {

// Makes an object for a new handle. Call `keep` once the worker has made it too; else the handle is
// removed again.
template <typename T>
class NewObject {
 public:
  explicit NewObject(const Here& here) : handles_(here.session->handles()) {
    auto made = std::make_unique<T>();
    object_ = made.get();
    object_->context = here.context_id();
    id_ = handles_.Add(std::move(made));
  }
  ~NewObject() {
    if (id_ != 0 && !kept_) handles_.Remove(id_);
  }
  NewObject(const NewObject&) = delete;
  NewObject& operator=(const NewObject&) = delete;

  uint64_t id() const { return id_; }  // 0: no handle is left
  T* operator->() const { return object_; }
  void keep() { kept_ = true; }

 private:
  HandleTable& handles_;
  T* object_ = nullptr;
  uint64_t id_ = 0;
  bool kept_ = false;
};

CUresult CreateArray(CUarray* handle, const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  if (const CUresult bad = base::CheckArray(shape, 1); bad != CUDA_SUCCESS) return bad;
  NewObject<Array> made(here);
  if (made.id() == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  made->shape = shape;
  rgpuArrayCreate_Reply reply;
  const CUresult status =
      here.channel().Call<op_rgpuArrayCreate>(here.issuer(),
                                              {made.id(), shape.Width, shape.Height, shape.Depth,
                                               shape.Format, shape.NumChannels, shape.Flags},
                                              &reply);
  if (status != CUDA_SUCCESS) return status;
  made.keep();
  *handle = MakeHandle<CUarray>(made.id());
  return CUDA_SUCCESS;
}

// Finds the object of a handle, for a call that needs a context.
template <typename T, typename Handle>
CUresult Find(Handle handle, Here* here, T** object) {
  if (const CUresult status = ContextHere(here); status != CUDA_SUCCESS) return status;
  *object = here->session->handles().Find<T>(HandleValue(handle));
  return *object == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

// The calls about sparse arrays and arrays that are mapped later: the program has none.
template <typename T, typename Handle>
CUresult DescribeNothing(Handle handle) {
  Here here;
  T* object = nullptr;
  const CUresult status = Find(handle, &here, &object);
  return status == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : status;
}

// Returns the handle of a level or plane, the same one each time. `ask(id, reply)` asks the worker
// for it.
template <typename Reply, typename Whole, typename Ask>
CUresult GetPart(const Here& here, Whole& whole, unsigned index, CUarray* part, Ask ask) {
  const std::lock_guard lock(whole.mutex);
  uint64_t& known = whole.parts[index];
  if (known == 0) {
    NewObject<Array> made(here);
    if (made.id() == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    made->context = whole.context;
    Reply reply;
    if (const CUresult status = ask(made.id(), &reply); status != CUDA_SUCCESS) {
      whole.parts.erase(index);
      return status;
    }
    made->whole = false;
    made->shape = {reply.width,    reply.height,
                   reply.depth,    static_cast<CUarray_format>(reply.format),
                   reply.channels, reply.flags};
    made.keep();
    known = made.id();
  }
  *part = MakeHandle<CUarray>(known);
  return CUDA_SUCCESS;
}

// Forgets the object and its parts. The object's context need not be current.
template <typename Op, typename T>
CUresult Destroy(T* object) {
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Here here = AnyHere(object->id);
  here.context = here.session->handles().Find<Context>(object->context);
  if (here.context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const uint64_t id = object->id;
  {
    const std::lock_guard lock(object->mutex);
    for (const auto& [index, part] : object->parts) here.session->handles().Remove(part);
  }
  if (!here.session->handles().Remove(id)) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult status = here.channel().Post<Op>(here.issuer(), {id});
  // Another process of the lease may wait for the memory.
  here.channel().Flush();
  return status;
}

}  // namespace

CUresult cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* pAllocateArray) {
  const CUDA_ARRAY_DESCRIPTOR& flat = *pAllocateArray;
  return CreateArray(pHandle, {flat.Width, flat.Height, 0, flat.Format, flat.NumChannels, 0});
}

CUresult cuArray3DCreate_v2(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray) {
  return CreateArray(pHandle, *pAllocateArray);
}

CUresult cuArrayDestroy(CUarray hArray) {
  Array* array = SessionOf(HandleValue(hArray))->handles().Find<Array>(HandleValue(hArray));
  if (array != nullptr && !array->whole) return CUDA_ERROR_INVALID_HANDLE;
  return Destroy<op_rgpuArrayDestroy>(array);
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
  Here here;
  Array* array = nullptr;
  const CUresult status = Find(hArray, &here, &array);
  if (status != CUDA_SUCCESS) return status;
  const CUDA_ARRAY3D_DESCRIPTOR& shape = array->shape;
  *pArrayDescriptor = {shape.Width, shape.Height, shape.Format, shape.NumChannels};
  return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
  Here here;
  Array* array = nullptr;
  const CUresult status = Find(hArray, &here, &array);
  if (status == CUDA_SUCCESS) *pArrayDescriptor = array->shape;
  return status;
}

CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*, CUarray array) {
  return DescribeNothing<Array>(array);
}

CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*,
                                             CUmipmappedArray mipmap) {
  return DescribeNothing<MipmappedArray>(mipmap);
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS*, CUarray array, CUdevice) {
  return DescribeNothing<Array>(array);
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS*,
                                               CUmipmappedArray mipmap, CUdevice) {
  return DescribeNothing<MipmappedArray>(mipmap);
}

CUresult cuArrayGetPlane(CUarray* pPlaneArray, CUarray hArray, unsigned int planeIdx) {
  Here here;
  Array* array = nullptr;
  const CUresult status = Find(hArray, &here, &array);
  if (status != CUDA_SUCCESS) return status;
  return GetPart<rgpuArrayPlane_Reply>(here, *array, planeIdx, pPlaneArray,
                                       [&](uint64_t id, rgpuArrayPlane_Reply* reply) {
                                         return here.channel().Call<op_rgpuArrayPlane>(
                                             here.issuer(), {id, array->id, planeIdx}, reply);
                                       });
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* pHandle,
                                const CUDA_ARRAY3D_DESCRIPTOR* pMipmappedArrayDesc,
                                unsigned int numMipmapLevels) {
  Here here;
  const CUDA_ARRAY3D_DESCRIPTOR& shape = *pMipmappedArrayDesc;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  const CUresult bad = base::CheckArray(shape, numMipmapLevels);
  if (bad != CUDA_SUCCESS) return bad;
  NewObject<MipmappedArray> made(here);
  if (made.id() == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  rgpuMipmappedArrayCreate_Reply reply;
  const CUresult status = here.channel().Call<op_rgpuMipmappedArrayCreate>(
      here.issuer(),
      {made.id(), shape.Width, shape.Height, shape.Depth, shape.Format, shape.NumChannels,
       shape.Flags, numMipmapLevels},
      &reply);
  if (status != CUDA_SUCCESS) return status;
  made.keep();
  *pHandle = MakeHandle<CUmipmappedArray>(made.id());
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetLevel(CUarray* pLevelArray, CUmipmappedArray hMipmappedArray,
                                  unsigned int level) {
  Here here;
  MipmappedArray* array = nullptr;
  const CUresult status = Find(hMipmappedArray, &here, &array);
  if (status != CUDA_SUCCESS) return status;
  return GetPart<rgpuMipmapLevel_Reply>(here, *array, level, pLevelArray,
                                        [&](uint64_t id, rgpuMipmapLevel_Reply* reply) {
                                          return here.channel().Call<op_rgpuMipmapLevel>(
                                              here.issuer(), {id, array->id, level}, reply);
                                        });
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
  return Destroy<op_rgpuMipmappedArrayDestroy>(
      SessionOf(HandleValue(hMipmappedArray))
          ->handles()
          .Find<MipmappedArray>(HandleValue(hMipmappedArray)));
}

}  // namespace rgpu::shim
