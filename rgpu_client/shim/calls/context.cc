// Contexts. The context stack of each thread is local; only creation, destruction and
// synchronisation send a command.
#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/contexts.h"
#include "rgpu_client/shim/calls/host_bytes.h"
#include "rgpu_client/shim/calls/visible_memory.h"
#include "rgpu_client/shim/graphs/graphs.h"

#include <memory>
#include <vector>

namespace rgpu::shim {
namespace {

constexpr unsigned kKnownFlags = CU_CTX_FLAGS_MASK;

std::unique_ptr<Context> NewContext(int device, bool primary, unsigned flags) {
  auto context = std::make_unique<Context>();
  context->device = device;
  context->primary = primary;
  context->flags = flags;
  context->legacy.wire = kWireLegacyStream;
  context->legacy.id = kWireLegacyStream;
  return context;
}

// Creates the context on the server, under a handle that the client has created.
template <typename Op>
CUresult Create(Session& session, std::unique_ptr<Context> made, Context** out) {
  Context* context = made.get();
  const uint64_t id = session.handles().Add(std::move(made));
  if (id == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  context->context = static_cast<uint32_t>(id);
  context->legacy.context = static_cast<uint32_t>(id);
  const Device& device = *session.devices().Find(context->device);
  context->pool = device.current_pool.load();
  typename Op::Reply reply;
  const CUresult status = session.channel().Call<Op>(
      {&ThisThread(), 0}, {id, device.server_ordinal, context->flags.load()}, &reply);
  if (status != CUDA_SUCCESS) {
    context->alive = false;
    session.handles().Remove(id);
    return status;
  }
  *out = context;
  return CUDA_SUCCESS;
}

CUresult CreateAndPush(CUcontext* pctx, unsigned flags, CUdevice dev, unsigned api_version) {
  const Here here = DeviceHere(dev);
  if (here.session->devices().Find(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (pctx == nullptr || (flags & ~kKnownFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  auto made = NewContext(dev, false, flags);
  made->api_version = api_version;
  Context* context = nullptr;
  const CUresult status = Create<op_rgpuContextCreate>(*here.session, std::move(made), &context);
  if (status != CUDA_SUCCESS) return status;
  here.thread->stack.push_back(context);
  *pctx = MakeHandle<CUcontext>(context->id);
  return CUDA_SUCCESS;
}

// Finds the context of a handle. If `null_is_current`, a null handle means the current context.
CUresult Named(CUcontext handle, bool null_is_current, Context** out) {
  Here here;
  if (handle == nullptr && null_is_current) {
    const CUresult status = ContextHere(&here);
    *out = here.context;
    return status;
  }
  *out = SessionOfContext(HandleValue(handle))->FindContext(handle);
  return *out != nullptr && (*out)->alive ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

void ForgetObjects(Session& session, uint32_t context) {
  std::vector<uint64_t> gone;
  session.handles().ForEach([&](Object* object) {
    if (object->context == context && object->kind != Kind::kPool) gone.push_back(object->id);
  });
  for (const uint64_t id : gone) session.handles().Remove(id);
  session.textures().DropContext(context);
}

// Frees the pinned memory of a destroyed context, as NVIDIA's driver does, and the addresses of its
// allocations.
void FreeLeft(Session& session, const std::vector<Range>& ranges) {
  for (const Range& range : ranges) {
    if (range.cut) {
      session.memory_credit().Drop(range.base, range.bytes);
      continue;
    }
    if (range.kind != RangeKind::kPinned) continue;
    // A copy that is still outstanding would otherwise touch memory that has been given to another
    // owner.
    WaitForHostBytes({&session, &ThisThread(), nullptr, nullptr}, range.base, range.bytes);
    FreeImages(range);
    session.pinned().Free(reinterpret_cast<void*>(range.base), range.bytes);
  }
}

// All waits for values that were posted to the context up to `seq` are complete.
void EndHostOrder(Session& session, Context& context, uint64_t seq) {
  uint64_t pending = context.host_order_seq.load();
  if (pending == 0 || pending > seq) return;
  if (context.host_order_seq.compare_exchange_strong(pending, 0)) {
    session.host_ordered_contexts.fetch_sub(1);
  }
}

}  // namespace

CUresult DestroyContext(Session& session, Context& context) {
  if (!context.alive.exchange(false)) return CUDA_ERROR_INVALID_CONTEXT;
  const auto id = static_cast<uint32_t>(context.id);
  graph::ContextGone(Graphs(), MakeHandle<CUcontext>(context.id));
  // Forget the addresses before the call: once the server has freed them, another thread's
  // allocation may get them.
  const std::vector<Range> left = session.addresses().DropContext(id);
  for (const Range& range : left) {
    if (range.is_device() && !range.cut) ForgetVisible(session, range);
  }
  session.imports().DropContext(id);
  rgpuContextDestroy_Reply reply;
  const CUresult status =
      session.channel().Call<op_rgpuContextDestroy>({&ThisThread(), id}, {id}, &reply);
  ForgetObjects(session, id);
  EndHostOrder(session, context, UINT64_MAX);
  session.stream_frees().CoverContext(id, UINT64_MAX);
  FreeLeft(session, left);
  return status;
}

CUresult SynchronizeContext(const Here& here) {
  const uint64_t upto = here.channel().last_posted();
  if (here.context->synced_seq.load() >= upto) return here.channel().sticky();
  rgpuContextSynchronize_Reply reply;
  const CUresult status =
      here.channel().Call<op_rgpuContextSynchronize>(here.issuer(), {here.context->id}, &reply);
  if (status != CUDA_SUCCESS) return status;
  MarkSynced(here.context->synced_seq, upto);
  here.session->stream_frees().CoverContext(here.context_id(), upto);
  EndHostOrder(*here.session, *here.context, upto);
  return here.channel().Complete(here.context_id(), nullptr, upto);
}

void StartHostOrder(const Here& here, uint64_t seq) {
  std::atomic<uint64_t>& place = here.context->host_order_seq;
  uint64_t before = place.load();
  while (before < seq && !place.compare_exchange_weak(before, seq)) {
  }
  if (before == 0) here.session->host_ordered_contexts.fetch_add(1);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  Session& session = *SessionOfDevice(dev);
  Device* device = session.devices().Find(dev);
  const std::lock_guard lock(device->primary_mutex);
  if (device->primary == nullptr) {
    const CUresult status = Create<op_rgpuPrimaryRetain>(
        session, NewContext(dev, true, device->primary_flags), &device->primary);
    if (status != CUDA_SUCCESS) return status;
  }
  ++device->primary_references;
  *pctx = MakeHandle<CUcontext>(device->primary->id);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  Session& session = *SessionOfDevice(dev);
  Device* device = session.devices().Find(dev);
  const std::lock_guard lock(device->primary_mutex);
  if (device->primary_references == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--device->primary_references > 0) return CUDA_SUCCESS;
  Context* primary = std::exchange(device->primary, nullptr);
  return DestroyContext(session, *primary);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  Session& session = *SessionOfDevice(dev);
  Device* device = session.devices().Find(dev);
  const std::lock_guard lock(device->primary_mutex);
  Context* primary = std::exchange(device->primary, nullptr);
  device->primary_references = 0;
  return primary == nullptr ? CUDA_SUCCESS : DestroyContext(session, *primary);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  Device* device = CurrentSession()->devices().Find(dev);
  const std::lock_guard lock(device->primary_mutex);
  device->primary_flags = flags;
  if (device->primary != nullptr) device->primary->flags = flags;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
  Device* device = CurrentSession()->devices().Find(dev);
  const std::lock_guard lock(device->primary_mutex);
  *flags = device->primary_flags;
  *active = device->primary != nullptr ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* ctxCreateParams, unsigned int flags,
                        CUdevice dev) {
  if (ctxCreateParams != nullptr &&
      (ctxCreateParams->numExecAffinityParams != 0 || ctxCreateParams->cigParams != nullptr)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CreateAndPush(pctx, flags, dev, 13000);
}

CUresult cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam*, int numParams, unsigned int flags,
                        CUdevice dev) {
  if (numParams != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return CreateAndPush(pctx, flags, dev, 3020);
}

CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return CreateAndPush(pctx, flags, dev, 3020);
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
  const Here here = InContextHere(ctx);
  Context* context = here.session->FindContext(ctx);
  if (context == nullptr || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  auto& stack = here.thread->stack;
  if (!stack.empty() && stack.back() == context) stack.pop_back();
  return DestroyContext(*here.session, *context);
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  Context* context = nullptr;
  if (const CUresult status = Named(ctx, false, &context); status != CUDA_SUCCESS) return status;
  ThisThread().stack.push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext* pctx) {
  auto& stack = ThisThread().stack;
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (pctx != nullptr) *pctx = MakeHandle<CUcontext>(stack.back()->id);
  stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx) {
  auto& stack = ThisThread().stack;
  Context* context = nullptr;
  if (ctx != nullptr) {
    if (const CUresult status = Named(ctx, false, &context); status != CUDA_SUCCESS) return status;
  }
  if (!stack.empty()) stack.pop_back();
  if (context != nullptr) stack.push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* pctx) {
  const auto& stack = ThisThread().stack;
  *pctx = stack.empty() ? nullptr : MakeHandle<CUcontext>(stack.back()->id);
  return CUDA_SUCCESS;
}

CUresult cuCtxAttach(CUcontext* pctx, unsigned int) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  here.context->attached.fetch_add(1);
  *pctx = MakeHandle<CUcontext>(here.context->id);
  return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext ctx) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  if (HandleValue(ctx) != here.context->id) return CUDA_ERROR_INVALID_CONTEXT;
  if (here.context->attached.fetch_sub(1) > 1) return CUDA_SUCCESS;
  return shim::cuCtxDestroy_v2(ctx);
}

CUresult cuCtxSynchronize() {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  const CUresult bad = CheckContextWait(*here.context);
  return bad == CUDA_SUCCESS ? SynchronizeContext(here) : bad;
}

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
  Here here = AnyHere();
  if (const CUresult status = Named(ctx, true, &here.context); status != CUDA_SUCCESS)
    return status;
  here.session = SessionOfContext(here.context->id);
  const CUresult bad = CheckContextWait(*here.context);
  return bad == CUDA_SUCCESS ? SynchronizeContext(here) : bad;
}

CUresult cuCtxGetDevice(CUdevice* device) { return shim::cuCtxGetDevice_v2(device, nullptr); }

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext ctx) {
  Context* context = nullptr;
  if (const CUresult status = Named(ctx, true, &context); status != CUDA_SUCCESS) return status;
  *device = context->device;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long* ctxId) {
  Context* context = nullptr;
  if (const CUresult status = Named(ctx, true, &context); status != CUDA_SUCCESS) return status;
  *ctxId = context->id;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int* version) {
  Context* context = nullptr;
  if (const CUresult status = Named(ctx, true, &context); status != CUDA_SUCCESS) return status;
  *version = context->api_version;
  return CUDA_SUCCESS;
}

}  // namespace rgpu::shim
