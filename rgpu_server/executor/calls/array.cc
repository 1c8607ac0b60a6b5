// Handlers: arrays and mipmapped arrays. Their memory is charged before the driver is asked, and
// released after the driver has freed it.
#include "gen/dispatch.gen.h"
#include "rgpu_common/native/base/array_shape.h"
#include "rgpu_server/executor/allocations.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/loads.h"
#include "rgpu_server/executor/round.h"

namespace rgpu::exec {

namespace {

template <typename Request>
CUDA_ARRAY3D_DESCRIPTOR ShapeOf(const Request& request) {
  return {request.width,    request.height,
          request.depth,    static_cast<CUarray_format>(request.format),
          request.channels, request.flags};
}

template <typename Reply>
void Describe(const CUDA_ARRAY3D_DESCRIPTOR& shape, Reply* reply) {
  reply->width = shape.Width;
  reply->height = shape.Height;
  reply->depth = shape.Depth;
  reply->format = static_cast<uint32_t>(shape.Format);
  reply->channels = shape.NumChannels;
  reply->flags = shape.Flags;
}

// Lets the driver make an array of `bytes`, and charges for it. How much NVIDIA's driver takes for
// it is measured; the emulated device takes whole pages of these bytes.
CUresult MakeCharged(Executor& executor, const CUDA_ARRAY3D_DESCRIPTOR& shape, uint32_t levels,
                     const std::function<CUresult()>& make, const std::function<void()>& undo,
                     uint64_t* charged_bytes) {
  const CUresult bad = base::CheckArray(shape, levels);
  if (bad != CUDA_SUCCESS) return bad;
  base::ArrayLayout layout;
  uint64_t bytes = 0;
  // No device has arrays of so many bytes that they cannot be laid out.
  if (!base::LayOut(shape, levels, &layout) ||
      !RoundUp(layout.bytes, executor.memory().granules().bytes(), &bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!executor.driver().emulated) {
    Charged charged;
    const CUresult result = LoadCharged(executor, layout.bytes, make, undo, &charged);
    *charged_bytes = charged.bytes;
    return result;
  }
  if (executor.memory().Charge(bytes) != CUDA_SUCCESS) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = AllocateTwice(executor, bytes, make);
  if (result == CUDA_SUCCESS) {
    *charged_bytes = bytes;
  } else {
    executor.ledger().Release(bytes);
  }
  return result;
}

// Frees the memory of an array when the work of its context is complete. `in_graphs`: a launch in
// any context may use it.
void Free(Executor& executor, const std::shared_ptr<Context>& context, bool in_graphs,
          uint64_t charged_bytes, std::function<void()> destroy) {
  auto release = [&executor, charged_bytes] { executor.ledger().Release(charged_bytes); };
  if (!in_graphs) {
    executor.reaper().Add(context, std::move(destroy), std::move(release), charged_bytes);
    return;
  }
  std::vector<std::shared_ptr<Point>> points;
  executor.EverythingInAll(false, &points);
  executor.reaper().AddBehind(std::move(points), context, std::move(destroy), std::move(release),
                              charged_bytes);
}

// Puts a new array in its table. If its context went while the lock was released, the driver has
// destroyed it.
template <typename Made, typename Place>
CUresult Keep(Executor& executor, const Context& context, Place& place,
              std::shared_ptr<Made> array) {
  if (context.dead) {
    executor.ledger().Release(array->charged_bytes);
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  place.Add(std::move(array));
  return CUDA_SUCCESS;
}

// Takes the levels or planes of an array that is destroyed. Returns whether a graph has named one.
bool ForgetParts(Executor& executor, const std::vector<uint64_t>& parts) {
  bool in_graphs = false;
  for (const uint64_t id : parts) {
    std::shared_ptr<Array> part;
    if (executor.objects().arrays.Take(id, &part) != CUDA_SUCCESS) continue;
    part->gone = true;
    in_graphs = in_graphs || part->in_graphs;
  }
  return in_graphs;
}

// Adds the array `handle`, a level or plane of another one, and describes it. A part has one id.
template <typename Reply>
CUresult AddPart(Executor& executor, uint64_t id, uint32_t context, CUarray handle,
                 std::vector<uint64_t>* parts, Reply* reply) {
  auto part = std::make_shared<Array>();
  part->context = context;
  part->handle = handle;
  part->whole = false;
  const CUresult result = executor.driver()->cuArray3DGetDescriptor_v2(&part->shape, handle);
  if (result != CUDA_SUCCESS) return result;
  Describe(part->shape, reply);
  executor.objects().arrays.Add(id, std::move(part));
  parts->push_back(id);
  return CUDA_SUCCESS;
}

// Enters the context of an array.
CUresult EnterOwner(Executor& executor, uint32_t id, std::shared_ptr<Context>* context) {
  const CUresult result = executor.objects().contexts.Share(id, context);
  if (result != CUDA_SUCCESS || (*context)->closing) return CUDA_ERROR_INVALID_CONTEXT;
  return executor.MakeCurrent(**context);
}

}  // namespace

CUresult Run(Executor& executor, const Command& command, const rgpuArrayCreate_Request& request,
             rgpuArrayCreate_Reply*) {
  std::shared_ptr<Context> context;
  const CUresult entered = executor.Enter(command, &context);
  if (entered != CUDA_SUCCESS) return entered;
  Table<Array>::Reservation place(executor.objects().arrays, request.array);
  if (place.result() != CUDA_SUCCESS) return place.result();
  auto array = std::make_shared<Array>();
  array->context = context->id;
  array->shape = ShapeOf(request);
  const Driver& driver = executor.driver();
  const CUresult result = MakeCharged(
      executor, array->shape, 1,
      [&] { return driver->cuArray3DCreate_v2(&array->handle, &array->shape); },
      [&] { driver->cuArrayDestroy(array->handle); }, &array->charged_bytes);
  return result == CUDA_SUCCESS ? Keep(executor, *context, place, std::move(array)) : result;
}

CUresult Run(Executor& executor, const Command&, const rgpuArrayDestroy_Request& request,
             rgpuArrayDestroy_Reply*) {
  Array* found = nullptr;
  CUresult result = executor.objects().arrays.Find(request.array, &found);
  if (result != CUDA_SUCCESS) return result;
  if (!found->whole) return CUDA_ERROR_INVALID_HANDLE;
  std::shared_ptr<Context> context;
  result = EnterOwner(executor, found->context, &context);
  if (result != CUDA_SUCCESS) return result;
  std::shared_ptr<Array> array;
  executor.objects().arrays.Take(request.array, &array);
  array->gone = true;
  const bool in_graphs = ForgetParts(executor, array->parts) || array->in_graphs;
  const Driver& driver = executor.driver();
  Free(executor, context, in_graphs, array->charged_bytes,
       [&driver, handle = array->handle] { driver->cuArrayDestroy(handle); });
  return CUDA_SUCCESS;
}

CUresult Run(Executor& executor, const Command& command,
             const rgpuMipmappedArrayCreate_Request& request, rgpuMipmappedArrayCreate_Reply*) {
  std::shared_ptr<Context> context;
  const CUresult entered = executor.Enter(command, &context);
  if (entered != CUDA_SUCCESS) return entered;
  Table<MipmappedArray>::Reservation place(executor.objects().mipmapped_arrays, request.mipmap);
  if (place.result() != CUDA_SUCCESS) return place.result();
  auto array = std::make_shared<MipmappedArray>();
  array->context = context->id;
  const CUDA_ARRAY3D_DESCRIPTOR shape = ShapeOf(request);
  const Driver& driver = executor.driver();
  const CUresult result = MakeCharged(
      executor, shape, request.levels,
      [&] { return driver->cuMipmappedArrayCreate(&array->handle, &shape, request.levels); },
      [&] { driver->cuMipmappedArrayDestroy(array->handle); }, &array->charged_bytes);
  return result == CUDA_SUCCESS ? Keep(executor, *context, place, std::move(array)) : result;
}

CUresult Run(Executor& executor, const Command&, const rgpuMipmappedArrayDestroy_Request& request,
             rgpuMipmappedArrayDestroy_Reply*) {
  MipmappedArray* found = nullptr;
  CUresult result = executor.objects().mipmapped_arrays.Find(request.mipmap, &found);
  if (result != CUDA_SUCCESS) return result;
  std::shared_ptr<Context> context;
  result = EnterOwner(executor, found->context, &context);
  if (result != CUDA_SUCCESS) return result;
  std::shared_ptr<MipmappedArray> array;
  executor.objects().mipmapped_arrays.Take(request.mipmap, &array);
  const bool in_graphs = ForgetParts(executor, array->parts);
  const Driver& driver = executor.driver();
  Free(executor, context, in_graphs, array->charged_bytes,
       [&driver, handle = array->handle] { driver->cuMipmappedArrayDestroy(handle); });
  return CUDA_SUCCESS;
}

CUresult Run(Executor& executor, const Command&, const rgpuMipmapLevel_Request& request,
             rgpuMipmapLevel_Reply* reply) {
  MipmappedArray* array = nullptr;
  std::shared_ptr<Context> context;
  CUresult result = executor.objects().mipmapped_arrays.Find(request.mipmap, &array);
  if (result == CUDA_SUCCESS) result = EnterOwner(executor, array->context, &context);
  if (result == CUDA_SUCCESS) result = executor.objects().arrays.CanAdd(request.array);
  if (result != CUDA_SUCCESS) return result;
  CUarray level = nullptr;
  result = executor.driver()->cuMipmappedArrayGetLevel(&level, array->handle, request.level);
  if (result != CUDA_SUCCESS) return result;
  return AddPart(executor, request.array, array->context, level, &array->parts, reply);
}

CUresult Run(Executor& executor, const Command&, const rgpuArrayPlane_Request& request,
             rgpuArrayPlane_Reply* reply) {
  Array* array = nullptr;
  std::shared_ptr<Context> context;
  const Driver& driver = executor.driver();
  if (driver->cuArrayGetPlane == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUresult result = executor.objects().arrays.Find(request.whole, &array);
  if (result == CUDA_SUCCESS) result = EnterOwner(executor, array->context, &context);
  if (result == CUDA_SUCCESS) result = executor.objects().arrays.CanAdd(request.array);
  if (result != CUDA_SUCCESS) return result;
  CUarray plane = nullptr;
  result = driver->cuArrayGetPlane(&plane, array->handle, request.plane);
  if (result != CUDA_SUCCESS) return result;
  return AddPart(executor, request.array, array->context, plane, &array->parts, reply);
}

}  // namespace rgpu::exec
