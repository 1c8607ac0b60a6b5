// Calls cuCtx* and cuDevicePrimaryCtx*; the context stack of a thread is in current.cc.
#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/entry.h"
#include "rgpu_emu/device/graph_capture.h"

namespace rgpu::emu {
namespace {

constexpr unsigned kApiVersion = 13000;
constexpr uint64_t kLargestStack = 512U << 10;

CUresult LostDevice() { return static_cast<CUresult>(TheDevice().lost.load()); }

CUresult CheckFlags(unsigned flags) {
  if ((flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) != 0) return CUDA_ERROR_INVALID_VALUE;
  const unsigned schedule = flags & CU_CTX_SCHED_MASK;
  return schedule == 3 || schedule > 4 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

std::shared_ptr<Context> MakeContext(uint64_t handle, bool primary, unsigned flags) {
  auto context = std::make_shared<Context>(handle, primary, flags);
  context->Open();
  TheDevice().contexts.Add(handle, context);
  return context;
}

CUresult FindContext(CUcontext ctx, std::shared_ptr<Context>* context) {
  if (ctx == nullptr) return CurrentContext(context);
  *context = TheDevice().contexts.Find(Raw(ctx));
  return *context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : (*context)->Status();
}

// Sets a limit to the nearest value that the device supports.
CUresult ApplyLimit(Context* context, CUlimit limit, size_t value) {
  switch (limit) {
    case CU_LIMIT_STACK_SIZE:
      value = value > kLargestStack ? kLargestStack : (value + 15) / 16 * 16;
      if (!context->ReserveLocal(value, true)) return CUDA_ERROR_OUT_OF_MEMORY;
      context->limits[limit] = value;
      return CUDA_SUCCESS;
    case CU_LIMIT_PRINTF_FIFO_SIZE:
      TheDevice().runner->SetPrintfBytes(value);
      context->limits[limit] = value;
      return CUDA_SUCCESS;
    case CU_LIMIT_MALLOC_HEAP_SIZE:
      // As on a GPU, the limit cannot go below what kernels use already.
      return TheDevice().services->SetHeapBytes(value) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH:
    case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
      context->limits[limit] = value;
      return CUDA_SUCCESS;
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
      if (value > 128) return CUDA_ERROR_INVALID_VALUE;
      context->limits[limit] = value;
      return CUDA_SUCCESS;
    case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
      return CUDA_ERROR_UNSUPPORTED_LIMIT;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice) {
  if (const CUresult lost = LostDevice(); lost != CUDA_SUCCESS) return lost;
  PrimaryContext& primary = TheDevice().primary;
  const std::lock_guard lock(primary.mutex);
  if (primary.context == nullptr)
    primary.context = MakeContext(primary.handle, true, primary.flags);
  ++primary.retained;
  *pctx = As<CUcontext>(primary.handle);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) {
  PrimaryContext& primary = TheDevice().primary;
  std::shared_ptr<Context> last;
  {
    const std::lock_guard lock(primary.mutex);
    if (primary.retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--primary.retained == 0) last = std::move(primary.context);
  }
  if (last != nullptr) {
    TheDevice().contexts.Remove(last->handle);
    last->Destroy();
  }
  return CUDA_SUCCESS;
}

// References stay valid: the next use of the context finds a new one under the same handle.
CUresult cuDevicePrimaryCtxReset_v2(CUdevice) {
  PrimaryContext& primary = TheDevice().primary;
  std::shared_ptr<Context> old;
  {
    const std::lock_guard lock(primary.mutex);
    if (primary.context == nullptr) return CUDA_SUCCESS;
    old = std::move(primary.context);
    primary.context = MakeContext(primary.handle, true, primary.flags);
  }
  old->Destroy();
  TrimPools(0);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice, unsigned int flags) {
  if (const CUresult bad = CheckFlags(flags); bad != CUDA_SUCCESS) return bad;
  PrimaryContext& primary = TheDevice().primary;
  const std::lock_guard lock(primary.mutex);
  primary.flags = flags;
  if (primary.context != nullptr) primary.context->flags = flags;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned int* flags, int* active) {
  if (flags == nullptr && active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  PrimaryContext& primary = TheDevice().primary;
  const std::lock_guard lock(primary.mutex);
  if (flags != nullptr) *flags = primary.flags;
  if (active != nullptr) *active = primary.context != nullptr ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!IsDevice(dev)) return CUDA_ERROR_INVALID_DEVICE;
  if (const CUresult bad = CheckFlags(flags); bad != CUDA_SUCCESS) return bad;
  if (const CUresult lost = LostDevice(); lost != CUDA_SUCCESS) return lost;
  const auto context = MakeContext(NewHandle(HandleKind::kContext), false, flags);
  *pctx = As<CUcontext>(context->handle);
  return emu::cuCtxPushCurrent_v2(*pctx);
}

CUresult cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam*, int numParams, unsigned int flags,
                        CUdevice dev) {
  if (numParams != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return emu::cuCtxCreate_v2(pctx, flags, dev);
}

CUresult cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* params, unsigned int flags,
                        CUdevice dev) {
  if (params != nullptr && params->numExecAffinityParams != 0)
    return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  if (params != nullptr && params->cigParams != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return emu::cuCtxCreate_v2(pctx, flags, dev);
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
  Device& device = TheDevice();
  const auto context = device.contexts.Find(Raw(ctx));
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  // A primary context can only be released.
  if (context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  if (device.contexts.Remove(Raw(ctx)) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  CUcontext current = nullptr;
  emu::cuCtxGetCurrent(&current);
  if (current == ctx) emu::cuCtxPopCurrent_v2(nullptr);
  context->Destroy();
  return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext ctx) { return emu::cuCtxDestroy_v2(ctx); }
CUresult cuCtxAttach(CUcontext* pctx, unsigned int) {
  std::shared_ptr<Context> context;
  const CUresult found = AnyCurrentContext(&context);
  if (found == CUDA_SUCCESS) *pctx = As<CUcontext>(context->handle);
  return found;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  std::shared_ptr<Context> context;
  const CUresult found = AnyCurrentContext(&context);
  if (found == CUDA_SUCCESS) *device = 0;
  return found;
}

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext ctx) {
  if (ctx == nullptr) return emu::cuCtxGetDevice(device);
  if (TheDevice().contexts.Find(Raw(ctx)) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int* flags) {
  std::shared_ptr<Context> context;
  const CUresult found = AnyCurrentContext(&context);
  if (found == CUDA_SUCCESS) *flags = context->flags.load();
  return found;
}

CUresult cuCtxSetFlags(unsigned int flags) {
  if (const CUresult bad = CheckFlags(flags); bad != CUDA_SUCCESS) return bad;
  std::shared_ptr<Context> context;
  const CUresult found = CurrentContext(&context);
  if (found == CUDA_SUCCESS) context->flags = flags;
  return found;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long* ctxId) {
  std::shared_ptr<Context> context;
  const CUresult found = FindContext(ctx, &context);
  if (found == CUDA_SUCCESS) *ctxId = context->id;
  return found;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int* version) {
  std::shared_ptr<Context> context;
  const CUresult found = FindContext(ctx, &context);
  if (found == CUDA_SUCCESS) *version = kApiVersion;
  return found;
}

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
  std::shared_ptr<Context> context;
  const CUresult found = FindContext(ctx, &context);
  if (found != CUDA_SUCCESS) return found;
  const CUresult bad = graph::CheckContextWait(Graphs(), As<CUcontext>(context->handle));
  if (bad != CUDA_SUCCESS) return bad;
  const CUresult result = WaitIn(*context, context->Pending());
  TheDevice().runner->FlushPrintf();
  TrimPoolsAfterSync();
  return result;
}

CUresult cuCtxSynchronize() { return emu::cuCtxSynchronize_v2(nullptr); }

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  std::shared_ptr<Context> context;
  const CUresult found = CurrentContext(&context);
  if (found != CUDA_SUCCESS) return found;
  WaitAll(context->Pending());
  return ApplyLimit(context.get(), limit, value);
}

CUresult cuCtxGetLimit(size_t* pvalue, CUlimit limit) {
  std::shared_ptr<Context> context;
  const CUresult found = CurrentContext(&context);
  if (found != CUDA_SUCCESS) return found;
  if (limit == CU_LIMIT_PERSISTING_L2_CACHE_SIZE) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  if (limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE) return CUDA_ERROR_INVALID_VALUE;
  *pvalue = limit == CU_LIMIT_MALLOC_HEAP_SIZE ? TheDevice().services->heap_bytes()
                                               : context->limits[limit].load();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* pconfig) {
  std::shared_ptr<Context> context;
  const CUresult found = CurrentContext(&context);
  if (found == CUDA_SUCCESS) *pconfig = static_cast<CUfunc_cache>(context->cache_config.load());
  return found;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
  std::shared_ptr<Context> context;
  const CUresult found = CurrentContext(&context);
  if (found == CUDA_SUCCESS) context->cache_config = config;
  return found;
}

// Shared memory banks have one size on this device, and the setting is only a hint.
CUresult cuCtxGetSharedMemConfig(CUsharedconfig* pConfig) {
  std::shared_ptr<Context> context;
  const CUresult found = CurrentContext(&context);
  if (found == CUDA_SUCCESS) *pConfig = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
  return found;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig) {
  std::shared_ptr<Context> context;
  return CurrentContext(&context);
}

CUresult cuCtxGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  std::shared_ptr<Context> context;
  const CUresult found = CurrentContext(&context);
  if (found != CUDA_SUCCESS) return found;
  if (leastPriority != nullptr) *leastPriority = kLeastPriority;
  if (greatestPriority != nullptr) *greatestPriority = kGreatestPriority;
  return CUDA_SUCCESS;
}

CUresult cuCtxResetPersistingL2Cache() {
  std::shared_ptr<Context> context;
  return CurrentContext(&context);
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam*, CUexecAffinityType) {
  return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
}

}  // namespace rgpu::emu
