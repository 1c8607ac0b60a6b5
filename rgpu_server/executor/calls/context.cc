// Contexts, limits, client threads.
#include "gen/dispatch.gen.h"
#include "rgpu_server/executor/executor.h"

namespace rgpu::exec {

namespace {

constexpr uint64_t kDefaultStackBytes = 1024;  // per thread, part of every context

enum Hint : int32_t { kCacheConfig = 0, kSharedMemConfig = 1, kResetPersistingL2 = 2, kFlags = 3 };

std::shared_ptr<Stream> LegacyStream(Context* context) {
  auto stream = std::make_shared<Stream>();
  stream->id = kLegacyOperand;
  stream->context = context;
  stream->handle = CU_STREAM_LEGACY;
  stream->legacy = true;
  return stream;
}

// `create` makes the driver's context.
template <typename Create>
CUresult AddContext(Executor& executor, uint64_t id, bool primary, Create create) {
  if (id > UINT32_MAX) return CUDA_ERROR_INVALID_VALUE;  // it travels as u32 in every header
  if (const CUresult result = executor.contexts().CanAdd(id); result != CUDA_SUCCESS) return result;
  auto context = std::make_shared<Context>(executor.driver(), static_cast<uint32_t>(id));
  context->device = executor.device();
  context->primary = primary;
  const CUresult result = executor.Unlocked([&] { return create(&context->handle); });
  if (result != CUDA_SUCCESS) return result;
  context->legacy = LegacyStream(context.get());
  context->streams.push_back(context->legacy);
  executor.contexts().Add(id, context);
  return executor.MakeCurrent(*context);
}

// Device memory that a limit makes the driver set aside.
CUresult LimitBytes(Executor& executor, int32_t limit, uint64_t value, uint64_t* bytes) {
  switch (limit) {
    case CU_LIMIT_STACK_SIZE:
      if (value <= kDefaultStackBytes) {
        *bytes = 0;
        return CUDA_SUCCESS;
      }
      return __builtin_mul_overflow(value, executor.resident_threads(), bytes)
                 ? CUDA_ERROR_INVALID_VALUE
                 : CUDA_SUCCESS;
    case CU_LIMIT_PRINTF_FIFO_SIZE:
    case CU_LIMIT_MALLOC_HEAP_SIZE:
      *bytes = value;
      return CUDA_SUCCESS;
    default:
      *bytes = 0;
      return CUDA_SUCCESS;
  }
}

}  // namespace

CUresult Run(Executor& executor, const Command&, const rgpuPrimaryRetain_Request& request,
             rgpuPrimaryRetain_Reply*) {
  if (request.device != 0) return CUDA_ERROR_INVALID_DEVICE;
  const Driver& driver = executor.driver();
  return AddContext(executor, request.ctx, true, [&](CUcontext* handle) {
    // Flags steer how the client's threads wait, not the worker's.
    return driver->cuDevicePrimaryCtxRetain(handle, executor.device());
  });
}

CUresult Run(Executor& executor, const Command&, const rgpuContextCreate_Request& request,
             rgpuContextCreate_Reply*) {
  if (request.device != 0) return CUDA_ERROR_INVALID_DEVICE;
  const Driver& driver = executor.driver();
  return AddContext(executor, request.ctx, false, [&](CUcontext* handle) {
    const CUresult created = driver->cuCtxCreate_v2(handle, 0, executor.device());
    // It was pushed as well; which one is current here is decided per command.
    CUcontext pushed = nullptr;
    if (created == CUDA_SUCCESS) driver->cuCtxPopCurrent_v2(&pushed);
    return created;
  });
}

CUresult Run(Executor& executor, const Command&, const rgpuContextDestroy_Request& request,
             rgpuContextDestroy_Reply*) {
  std::shared_ptr<Context> context;
  if (executor.contexts().Share(request.ctx, &context) != CUDA_SUCCESS) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  if (const CUresult result = executor.MakeCurrent(*context); result != CUDA_SUCCESS) return result;
  std::vector<std::shared_ptr<Point>> points;
  executor.EverythingIn(*context, true, &points);
  // Its bytes still reach the client; an error of its work is reported, and it is destroyed anyway.
  const CUresult state = executor.WaitAll(points, context->id);
  executor.reaper().WaitAll();
  std::shared_ptr<Context> taken;
  if (executor.contexts().Take(request.ctx, &taken) != CUDA_SUCCESS) {
    return CUDA_ERROR_INVALID_CONTEXT;  // another thread was faster
  }
  std::vector<std::shared_ptr<Pool>> pools;  // they lie in the device, not in the context
  executor.pools().ForEach([&](const std::shared_ptr<Pool>& pool) {
    if (pool->context == context) pools.push_back(pool);
  });
  const uint64_t charged = executor.DropContext(context);
  const Driver& driver = executor.driver();
  const CUresult result = executor.Unlocked([&] {
    executor.role().Yield();
    for (const auto& pool : pools) driver->cuMemPoolDestroy(pool->handle);
    context->staging->Abandon();
    context->events->Abandon();
    return context->primary ? driver->cuDevicePrimaryCtxRelease_v2(context->device)
                            : driver->cuCtxDestroy_v2(context->handle);
  });
  executor.ledger().Release(charged);
  return state != CUDA_SUCCESS ? state : result;
}

CUresult Run(Executor& executor, const Command&, const rgpuContextSynchronize_Request& request,
             rgpuContextSynchronize_Reply*) {
  std::shared_ptr<Context> context;
  if (executor.contexts().Share(request.ctx, &context) != CUDA_SUCCESS) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  if (const CUresult result = executor.MakeCurrent(*context); result != CUDA_SUCCESS) return result;
  std::vector<std::shared_ptr<Point>> points;
  CUresult result = executor.EverythingIn(*context, true, &points);
  if (result == CUDA_SUCCESS) result = executor.WaitAll(points, context->id);
  if (!context->dead) {
    for (const auto& stream : context->streams) executor.Advance(*stream);
  }
  return result;
}

CUresult Run(Executor& executor, const Command& command, const rgpuContextSetLimit_Request& request,
             rgpuContextSetLimit_Reply*) {
  std::shared_ptr<Context> context;
  if (const CUresult result = executor.Enter(command, &context); result != CUDA_SUCCESS) {
    return result;
  }
  if (request.limit < 0 || request.limit >= static_cast<int32_t>(CU_LIMIT_MAX))
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t bytes = 0;
  CUresult result = LimitBytes(executor, request.limit, request.value, &bytes);
  if (result != CUDA_SUCCESS) return result;
  uint64_t& charged = context->limit_charged[request.limit];
  const uint64_t before = charged;
  if (bytes > before && executor.Charge(bytes - before) != CUDA_SUCCESS) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const Driver& driver = executor.driver();
  result = executor.Unlocked([&] {
    executor.role().Yield();
    return driver->cuCtxSetLimit(static_cast<CUlimit>(request.limit), request.value);
  });
  const uint64_t after = result == CUDA_SUCCESS ? bytes : before;
  executor.ledger().Release((bytes > before ? bytes : before) - after);
  charged = after;
  return result;
}

CUresult Run(Executor& executor, const Command& command, const rgpuContextGetLimit_Request& request,
             rgpuContextGetLimit_Reply* reply) {
  std::shared_ptr<Context> context;
  if (const CUresult result = executor.Enter(command, &context); result != CUDA_SUCCESS) {
    return result;
  }
  size_t value = 0;
  const CUresult result =
      executor.driver()->cuCtxGetLimit(&value, static_cast<CUlimit>(request.limit));
  reply->value = value;
  return result;
}

CUresult Run(Executor& executor, const Command& command, const rgpuContextHint_Request& request,
             rgpuContextHint_Reply*) {
  std::shared_ptr<Context> context;
  if (const CUresult result = executor.Enter(command, &context); result != CUDA_SUCCESS) {
    return result;
  }
  const Driver& driver = executor.driver();
  switch (request.what) {
    case kCacheConfig:
      return driver->cuCtxSetCacheConfig(static_cast<CUfunc_cache>(request.value));
    case kSharedMemConfig:
    case kFlags:
      return CUDA_SUCCESS;  // the first is without effect on every supported device; see above for
                            // flags
    case kResetPersistingL2:
      return driver->cuCtxResetPersistingL2Cache();
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult Run(Executor& executor, const Command&, const rgpuThreadGone_Request& request,
             rgpuThreadGone_Reply*) {
  executor.DropThread(request.gone);
  return CUDA_SUCCESS;
}

CUresult Run(Executor&, const Command&, const rgpuPing_Request& request, rgpuPing_Reply* reply) {
  reply->echo = request.echo;
  return CUDA_SUCCESS;
}

}  // namespace rgpu::exec
