// Handlers: contexts, their limits, and client threads that end.
#include <algorithm>

#include "gen/dispatch.gen.h"
#include "rgpu_server/executor/allocations.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/loads.h"

namespace rgpu::exec {

namespace {

// The most that a context takes on NVIDIA's driver; the emulated device's contexts take nothing.
constexpr uint64_t kContextBytes = 512U << 20;

using Hint = rgpuContextHint_Request;

std::shared_ptr<Stream> LegacyStream(Context* context) {
  auto stream = std::make_shared<Stream>();
  stream->id = kLegacyOperand;
  stream->context = context;
  stream->handle = CU_STREAM_LEGACY;
  stream->legacy = true;
  return stream;
}

// Returns how many bytes of the whole device are in use; a context must be current.
uint64_t DeviceUse(const Driver& driver) {
  size_t free = 0;
  size_t total = 0;
  return driver->cuMemGetInfo_v2(&free, &total) == CUDA_SUCCESS ? total - free : UINT64_MAX;
}

// Creates the driver's context and charges for the device memory that it takes. Charges the bound
// first, then lowers the charge to what was measured. Before the first context of a process there
// is no counter, so `before` is 0: the measurement then includes other users of the device, and the
// bound caps it.
template <typename Create>
CUresult MakeCharged(Executor& executor, Context& context, Create create) {
  const Driver& driver = executor.driver();
  const uint64_t bound = driver.emulated ? 0 : kContextBytes;
  if (executor.memory().Charge(bound) != CUDA_SUCCESS) return CUDA_ERROR_OUT_OF_MEMORY;
  const MemoryAccount::Measure measure(executor.memory());
  uint64_t before = 0;
  executor.objects().contexts.ForEach([&](const std::shared_ptr<Context>& other) {
    if (before == 0 && executor.MakeCurrent(*other) == CUDA_SUCCESS) before = DeviceUse(driver);
  });
  const CUresult result = executor.Unlocked([&] { return create(&context.handle); });
  if (result == CUDA_SUCCESS && executor.MakeCurrent(context) == CUDA_SUCCESS) {
    const uint64_t after = DeviceUse(driver);
    context.own_charged = std::min(after - std::min(after, before), bound);
  }
  executor.ledger().Release(bound - context.own_charged);
  return result;
}

// `create` makes the driver's context.
template <typename Create>
CUresult AddContext(Executor& executor, uint64_t id, bool primary, Create create) {
  if (id > UINT32_MAX) return CUDA_ERROR_INVALID_VALUE;  // headers carry the id as u32
  Table<Context>::Reservation place(executor.objects().contexts, id);
  if (place.result() != CUDA_SUCCESS) return place.result();
  auto context = std::make_shared<Context>(executor.driver(), static_cast<uint32_t>(id),
                                           executor.halt_watch());
  context->device = executor.device();
  context->primary = primary;
  const CUresult result = MakeCharged(executor, *context, create);
  if (result != CUDA_SUCCESS) return result;
  context->legacy = LegacyStream(context.get());
  context->streams.push_back(context->legacy);
  place.Add(context);
  return executor.MakeCurrent(*context);
}

// Returns the variable that holds the charge for a limit. Null: the limit takes no device memory,
// or LoadCharged measures what it takes. The stack limit applies to all threads that can be
// resident, and shares one charge with the kernels' local memory.
uint64_t* ChargeOf(Executor& executor, Context& context, int32_t limit) {
  switch (limit) {
    case CU_LIMIT_STACK_SIZE:
      return &context.local_charged;
    case CU_LIMIT_PRINTF_FIFO_SIZE:
      return &context.printf_charged;
    case CU_LIMIT_MALLOC_HEAP_SIZE:
      return executor.driver().emulated ? &executor.memory().heap_charged() : &context.heap_charged;
    default:
      return nullptr;
  }
}

// Sets `*bytes` to the device memory that the driver sets aside for a limit.
CUresult LimitBytes(Executor& executor, int32_t limit, uint64_t value, uint64_t* bytes) {
  *bytes = value;
  if (limit != CU_LIMIT_STACK_SIZE) return CUDA_SUCCESS;
  if (value <= kDefaultStackBytes) value = 0;
  return __builtin_mul_overflow(value, executor.memory().resident_threads(), bytes)
             ? CUDA_ERROR_INVALID_VALUE
             : CUDA_SUCCESS;
}

CUresult SetLimit(Executor& executor, CUlimit limit, uint64_t value) {
  const Driver& driver = executor.driver();
  const MemoryAccount::Change change(executor.memory());
  return executor.Unlocked([&] {
    executor.role().Yield();
    return driver->cuCtxSetLimit(limit, value);
  });
}

// Sets a limit whose charge is known beforehand.
CUresult SetCharged(Executor& executor, const std::shared_ptr<Context>& context, CUlimit limit,
                    uint64_t value, uint64_t* charged) {
  uint64_t bytes = 0;
  CUresult result = LimitBytes(executor, limit, value, &bytes);
  if (result != CUDA_SUCCESS) return result;
  const uint64_t more = bytes - std::min(bytes, *charged);
  if (executor.memory().Charge(more) != CUDA_SUCCESS) return CUDA_ERROR_OUT_OF_MEMORY;
  *charged += more;
  result = SetLimit(executor, limit, value);
  if (context->dead) return CUDA_ERROR_INVALID_CONTEXT;
  if (result != CUDA_SUCCESS) {
    // Another thread may have lowered the charge meanwhile.
    const uint64_t back = std::min(more, *charged);
    executor.ledger().Release(back);
    *charged -= back;
    return result;
  }
  // The driver may have set another value than the requested one. Only the emulated device is known
  // to give local memory back at once.
  size_t actual = 0;
  if (executor.driver()->cuCtxGetLimit(&actual, limit) == CUDA_SUCCESS) value = actual;
  if (LimitBytes(executor, limit, value, &bytes) != CUDA_SUCCESS) return CUDA_SUCCESS;
  if (!executor.driver().emulated) bytes = std::max(bytes, *charged - more);
  executor.ledger().Correct(*charged, bytes);
  *charged = bytes;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult Run(Executor& executor, const Command&, const rgpuPrimaryRetain_Request& request,
             rgpuPrimaryRetain_Reply*) {
  if (request.device != 0) return CUDA_ERROR_INVALID_DEVICE;
  // The driver counts retains. Under a second id, what is allocated would outlive the context that
  // is charged for it. The client library retains the primary context once.
  bool& retained = executor.objects().primary_retained;
  if (retained) return CUDA_ERROR_INVALID_CONTEXT;
  retained = true;
  const Driver& driver = executor.driver();
  const CUresult result = AddContext(executor, request.ctx, true, [&](CUcontext* handle) {
    // Flags say how the client's threads wait; they do not concern the worker's threads.
    return driver->cuDevicePrimaryCtxRetain(handle, executor.device());
  });
  retained = result == CUDA_SUCCESS;
  return result;
}

CUresult Run(Executor& executor, const Command&, const rgpuContextCreate_Request& request,
             rgpuContextCreate_Reply*) {
  if (request.device != 0) return CUDA_ERROR_INVALID_DEVICE;
  const Driver& driver = executor.driver();
  return AddContext(executor, request.ctx, false, [&](CUcontext* handle) {
    const CUresult created = driver->cuCtxCreate_v2(handle, 0, executor.device());
    // cuCtxCreate also makes the context current on this thread. Each command makes its own context
    // current, so undo that.
    CUcontext pushed = nullptr;
    if (created == CUDA_SUCCESS) driver->cuCtxPopCurrent_v2(&pushed);
    return created;
  });
}

namespace {

// What was created in a context but does not go with it: it lies in the device or in the driver.
struct Leftovers {
  // Allocations from pools; a pool outlives its contexts.
  std::vector<std::pair<CUdeviceptr, std::shared_ptr<Pool>>> pooled;
  std::vector<CUlibrary> libraries;
  std::vector<std::shared_ptr<Link>> links;  // they own the logs that the driver writes into
  std::vector<std::shared_ptr<GraphExec>> execs;
  std::vector<CUgraph> graphs;
};

Leftovers TakeLeftovers(Executor& executor, const std::shared_ptr<Context>& context) {
  Leftovers left;
  executor.objects().ranges.EraseIf([&](uint64_t base, const Range& range) {
    if (range.context != context->id || range.pool == nullptr) return false;
    left.pooled.emplace_back(base, range.pool);
    return true;
  });
  executor.objects().libraries.ForEach([&](const std::shared_ptr<Code>& code) {
    if (code->context == context) left.libraries.push_back(code->library);
  });
  executor.objects().links.ForEach([&](const std::shared_ptr<Link>& link) {
    // A link that a thread is working with goes with the process.
    if (link->context != context || link->busy) return;
    executor.objects().image_bytes -= link->held_bytes;
    left.links.push_back(link);
  });
  executor.objects().execs.ForEach([&](const std::shared_ptr<GraphExec>& exec) {
    if (exec->context == context) left.execs.push_back(exec);
  });
  executor.objects().graphs.ForEach([&](const std::shared_ptr<GraphShell>& shell) {
    if (shell->context == context && shell->handle != nullptr) left.graphs.push_back(shell->handle);
  });
  return left;
}

// Streams whose work may be on the device. The poller also has those that the client has destroyed,
// and those of client threads that have ended.
std::vector<std::shared_ptr<Stream>> StreamsWithWork(Executor& executor, const Context& context) {
  std::vector<std::shared_ptr<Stream>> streams = context.streams;
  for (const auto& stream : executor.poller().streams()) {
    if (stream->context == &context) streams.push_back(stream);
  }
  return streams;
}

// Points behind all work of the context.
std::vector<std::shared_ptr<Point>> PointsBehindWork(Executor& executor, Context& context) {
  std::vector<std::shared_ptr<Point>> points;
  executor.order().EverythingIn(context, true, &points);
  for (const auto& stream : StreamsWithWork(executor, context)) {
    if (!stream->outstanding.empty()) points.push_back(stream->outstanding.back().point);
  }
  return points;
}

}  // namespace

CUresult Run(Executor& executor, const Command&, const rgpuContextDestroy_Request& request,
             rgpuContextDestroy_Reply*) {
  std::shared_ptr<Context> context;
  if (executor.objects().contexts.Share(request.ctx, &context) != CUDA_SUCCESS ||
      context->closing) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  if (const CUresult result = executor.MakeCurrent(*context); result != CUDA_SUCCESS) return result;
  // From here on no command puts work into the context. Work that came after the wait would run on
  // after the gate has forgotten it, without the token and without a charge.
  context->closing = true;
  // The context's deliveries still reach the client.
  const CUresult state = executor.WaitAll(PointsBehindWork(executor, *context), context->id);
  // Work of a session that has failed may still run. The gate watches the work, and the end of the
  // process frees the rest.
  if (const CUresult failed = executor.sticky(); failed != CUDA_SUCCESS) return failed;
  executor.reaper().WaitAll();
  for (const auto& stream : StreamsWithWork(executor, *context)) executor.order().Advance(*stream);
  std::shared_ptr<Context> taken;
  executor.objects().contexts.Take(request.ctx, &taken);
  const Leftovers left = TakeLeftovers(executor, context);
  const Exports::Left shared = executor.exports().TakeContext(context->id);
  const uint64_t charged = executor.DropContext(context);
  const Driver& driver = executor.driver();
  const MemoryAccount::Change change(executor.memory());
  const CUresult result = executor.Unlocked([&] {
    executor.role().Yield();
    // Bytes that are being sent to the client lie in the context's staging memory.
    executor.outbox().Drain(-1);
    for (const auto& exec : left.execs) {
      driver->cuGraphExecDestroy(exec->handle);
      driver->cuGraphDestroy(exec->built.graph);
    }
    for (const CUgraph graph : left.graphs) driver->cuGraphDestroy(graph);
    for (const auto& link : left.links) driver->cuLinkDestroy(link->state);
    for (const CUlibrary library : left.libraries) driver->cuLibraryUnload(library);
    for (const auto& [dptr, pool] : left.pooled) driver->cuMemFreeAsync(dptr, CU_STREAM_LEGACY);
    context->staging->Abandon();
    context->halts.Abandon();
    context->events->Abandon();
    return context->primary ? driver->cuDevicePrimaryCtxRelease_v2(context->device)
                            : driver->cuCtxDestroy_v2(context->handle);
  });
  executor.ledger().Release(charged - std::min(charged, shared.kept_bytes));
  for (const Import& import : shared.imports) executor.exports().Close(import);
  if (context->primary) executor.objects().primary_retained = false;
  for (const auto& [dptr, pool] : left.pooled) {
    executor.memory().CountFree(*pool);
    LeavePool(executor, pool);
  }
  executor.memory().TrimAfterWait(nullptr);
  return state != CUDA_SUCCESS ? state : result;
}

CUresult Run(Executor& executor, const Command&, const rgpuContextSynchronize_Request& request,
             rgpuContextSynchronize_Reply*) {
  std::shared_ptr<Context> context;
  if (executor.objects().contexts.Share(request.ctx, &context) != CUDA_SUCCESS) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  if (const CUresult result = executor.MakeCurrent(*context); result != CUDA_SUCCESS) return result;
  std::vector<std::shared_ptr<Point>> points;
  const uint64_t frees = executor.memory().frees();
  CUresult result = executor.order().EverythingIn(*context, true, &points);
  if (result == CUDA_SUCCESS) result = executor.WaitAll(points, context->id);
  if (!context->dead) {
    for (const auto& stream : context->streams) executor.order().Advance(*stream);
    // Work of other contexts may still free memory.
    const uint64_t over = executor.objects().contexts.size() == 1 ? frees : 0;
    const Point* const waited = points.empty() ? nullptr : points.back().get();
    if (result == CUDA_SUCCESS) executor.memory().TrimAfterWait(waited, over);
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
  const auto limit = static_cast<CUlimit>(request.limit);
  if (uint64_t* charged = ChargeOf(executor, *context, limit); charged != nullptr) {
    return SetCharged(executor, context, limit, request.value, charged);
  }
  // The remaining limits concern launches by the device. Only the driver knows what memory they
  // take, so it is measured.
  const Driver& driver = executor.driver();
  size_t before = 0;
  const CUresult known = driver->cuCtxGetLimit(&before, limit);
  Charged charged;
  const CUresult result = LoadCharged(
      executor, 0, [&] { return driver->cuCtxSetLimit(limit, request.value); },
      [&] {
        if (known == CUDA_SUCCESS) driver->cuCtxSetLimit(limit, before);
      },
      &charged);
  if (result == CUDA_SUCCESS) context->own_charged += charged.bytes;
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
    case Hint::kCacheConfig:
      return driver->cuCtxSetCacheConfig(static_cast<CUfunc_cache>(request.value));
    case Hint::kSharedMemConfig:
    case Hint::kFlags:
      return CUDA_SUCCESS;  // both have no effect here: see rgpuPrimaryRetain for flags
    case Hint::kResetPersistingL2:
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
