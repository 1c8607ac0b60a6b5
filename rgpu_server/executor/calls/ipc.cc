// Handlers: memory and events that processes of one lease share.
#include <algorithm>
#include <string>

#include "gen/dispatch.gen.h"
#include "rgpu_common/native/base/emulated_ipc.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/round.h"
#include "rgpu_server/executor/shared_events.h"

namespace rgpu::exec {

namespace {

static_assert(sizeof(CUipcMemHandle) == sizeof(IpcHandle));
static_assert(sizeof(CUipcEventHandle) == sizeof(IpcHandle));

// The reply refers to the bytes until it is sent, by this thread.
wire::ByteView TokenReply(Executor& executor, const Export& exported) {
  thread_local std::string token;
  token = executor.exports().Token(exported);
  return wire::Bytes(token);
}

template <typename Handle>
IpcHandle Bytes(const Handle& handle) {
  IpcHandle bytes;
  std::memcpy(bytes.data(), &handle, sizeof handle);
  return bytes;
}

// The driver's handle of what another session exported. For the emulated device the descriptor that
// came with it replaces the exporter's.
template <typename Handle>
Handle DriverHandle(const Executor& executor, const Exports::Opened& opened) {
  Handle handle;
  std::memcpy(&handle, opened.handle.data(), sizeof handle);
  if (!executor.driver().emulated) return handle;
  base::EmulatedIpc ipc = base::ReadIpc(&handle);
  ipc.process = 0;
  ipc.fd = opened.file.get();
  base::WriteIpc(ipc, &handle);
  return handle;
}

// The allocation that contains `address`; its base if there is one.
bool FindAllocation(Executor& executor, uint64_t address, uint64_t* base, Range* range) {
  return executor.objects().ranges.At(address, base, range) && range->kind == Range::Kind::kPlain;
}

CUresult MakeExport(Executor& executor, const Context& context, uint64_t base, const Range& range,
                    std::shared_ptr<Export>* out) {
  Exports& exports = executor.exports();
  executor.objects().ranges.Find(base)->exported = true;  // no direct copy begins any more
  CUresult result = executor.directs().AwaitBegun(base, range.bytes, context);
  const Driver& driver = executor.driver();
  CUipcMemHandle handle{};
  if (result == CUDA_SUCCESS) {
    const Exports::Moving moving(executor);
    result = executor.Unlocked([&] { return driver->cuIpcGetMemHandle(&handle, base); });
  }
  if (result != CUDA_SUCCESS) return result;
  // Other threads may have freed or exported it meanwhile.
  const Range* now = executor.objects().ranges.Find(base);
  if (now == nullptr || now->serial != range.serial) return CUDA_ERROR_INVALID_VALUE;
  *out = exports.FindMemory(base);
  if (*out != nullptr) return CUDA_SUCCESS;
  Export made;
  made.handle = Bytes(handle);
  made.context = range.context;
  made.base = base;
  made.size = range.bytes;
  if (!RoundUp(range.bytes, executor.memory().granules().bytes(), &made.charged)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out = exports.Add(std::move(made));
  return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace

CUresult AwaitCopies(Executor& executor, const Context& own) {
  std::vector<std::shared_ptr<Point>> points;
  executor.objects().contexts.ForEach([&](const std::shared_ptr<Context>& context) {
    for (const Fence& fence : context->fences) points.push_back(fence.point);
    const Stream* last = context->last;
    if (last == nullptr || !last->fence_pending || context->closing) return;
    if (executor.MakeCurrent(*context) != CUDA_SUCCESS) return;
    std::shared_ptr<Point> point;
    executor.order().EverythingIn(*context->last, true, &point);
    if (point != nullptr) points.push_back(std::move(point));
  });
  const CUresult result = executor.MakeCurrent(own);
  return result == CUDA_SUCCESS ? executor.WaitAll(points, own.id) : result;
}

CUresult Run(Executor& executor, const Command& command, const rgpuIpcExportMemory_Request& request,
             rgpuIpcExportMemory_Reply* reply) {
  std::shared_ptr<Context> context;
  CUresult result = executor.Enter(command, &context);
  if (result != CUDA_SUCCESS) return result;
  uint64_t base = 0;
  Range range;
  if (!FindAllocation(executor, request.dptr, &base, &range)) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Export> exported = executor.exports().FindMemory(base);
  if (exported == nullptr) {
    executor.role().Yield();
    result = AwaitCopies(executor, *context);
    if (result == CUDA_SUCCESS) result = MakeExport(executor, *context, base, range, &exported);
  }
  if (result == CUDA_SUCCESS) reply->token = TokenReply(executor, *exported);
  return result;
}

CUresult Run(Executor& executor, const Command& command, const rgpuIpcOpenMemory_Request& request,
             rgpuIpcOpenMemory_Reply* reply) {
  std::shared_ptr<Context> context;
  CUresult result = executor.Enter(command, &context);
  if (result != CUDA_SUCCESS) return result;
  if (Ranges::full()) return CUDA_ERROR_OUT_OF_MEMORY;
  Exports::Opened opened;
  result = executor.exports().Open(request.token, Shared::kMemory, context->id, &opened);
  if (result != CUDA_SUCCESS) return result;
  const auto handle = DriverHandle<CUipcMemHandle>(executor, opened);
  const Driver& driver = executor.driver();
  CUdeviceptr dptr = 0;
  CUdeviceptr base = 0;
  size_t bytes = 0;
  result = context->closing ? CUDA_ERROR_INVALID_CONTEXT : executor.MakeCurrent(*context);
  if (result == CUDA_SUCCESS) {
    const MemoryAccount::Change change(executor.memory());
    result = driver->cuIpcOpenMemHandle_v2(&dptr, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  }
  if (result == CUDA_SUCCESS) {
    // The exporter's word is not taken for the size.
    result = driver->cuMemGetAddressRange_v2(&base, &bytes, dptr);
    bytes = result == CUDA_SUCCESS ? std::min<size_t>(opened.size, base + bytes - dptr) : 0;
    if (bytes == 0) driver->cuIpcCloseMemHandle(dptr);
    if (result == CUDA_SUCCESS && bytes == 0) result = CUDA_ERROR_MAP_FAILED;
  }
  if (result != CUDA_SUCCESS) {
    executor.exports().Close(opened.import);
    return result;
  }
  Range range{bytes, Range::Kind::kImported, context->id};
  range.import = opened.import;
  executor.objects().ranges.Add(dptr, std::move(range));
  reply->dptr = dptr;
  reply->bytes = bytes;
  return CUDA_SUCCESS;
}

CUresult Run(Executor& executor, const Command&, const rgpuIpcCloseMemory_Request& request,
             rgpuIpcCloseMemory_Reply*) {
  const Range* found = executor.objects().ranges.Find(request.dptr);
  if (found == nullptr || found->kind != Range::Kind::kImported) return CUDA_ERROR_INVALID_VALUE;
  Range range;
  executor.objects().ranges.Take(request.dptr, &range);
  std::shared_ptr<Context> context;
  if (executor.objects().contexts.Share(range.context, &context) != CUDA_SUCCESS) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  Fences fences;
  executor.EverythingInAll(false, &fences);
  if (const CUresult result = executor.MakeCurrent(*context); result != CUDA_SUCCESS) return result;
  const Driver& driver = executor.driver();
  executor.reaper().AddBehind(
      std::move(fences), context,
      [&driver, dptr = request.dptr] { driver->cuIpcCloseMemHandle(dptr); },
      [&executor, import = range.import] { executor.exports().Close(import); });
  // The exporter may free the memory, and count on its place, as soon as this call has returned.
  executor.role().Yield();
  executor.poller().Hurry();
  executor.reaper().WaitAll();
  return executor.sticky();
}

CUresult Run(Executor& executor, const Command&, const rgpuIpcExportEvent_Request& request,
             rgpuIpcExportEvent_Reply* reply) {
  Event* event = nullptr;
  const CUresult found = executor.objects().events.Find(request.event, &event);
  if (found != CUDA_SUCCESS) return found;
  if (event->shared == nullptr || event->shared->imported) return CUDA_ERROR_INVALID_HANDLE;
  SharedEvent& shared = *event->shared;
  if (shared.exported == nullptr) {
    CUipcEventHandle handle{};
    const CUresult result = executor.driver()->cuIpcGetEventHandle(&handle, shared.handle);
    if (result != CUDA_SUCCESS) return result;
    Export made;
    made.shared = Shared::kEvent;
    made.handle = Bytes(handle);
    made.context = event->context;
    shared.exported = executor.exports().Add(std::move(made));
    if (shared.exported == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  reply->token = TokenReply(executor, *shared.exported);
  return CUDA_SUCCESS;
}

CUresult Run(Executor& executor, const Command& command, const rgpuIpcOpenEvent_Request& request,
             rgpuIpcOpenEvent_Reply*) {
  std::shared_ptr<Context> context;
  CUresult result = executor.Enter(command, &context);
  if (result != CUDA_SUCCESS) return result;
  Table<Event>::Reservation place(executor.objects().events, request.event);
  if (place.result() != CUDA_SUCCESS) return place.result();
  Exports::Opened opened;
  result = executor.exports().Open(request.token, Shared::kEvent, context->id, &opened);
  if (result != CUDA_SUCCESS) return result;
  auto shared = std::make_shared<SharedEvent>();
  shared->context = context;
  shared->imported = true;
  const auto handle = DriverHandle<CUipcEventHandle>(executor, opened);
  result = context->closing ? CUDA_ERROR_INVALID_CONTEXT : executor.MakeCurrent(*context);
  if (result == CUDA_SUCCESS) {
    result = executor.driver()->cuIpcOpenEventHandle(&shared->handle, handle);
  }
  if (result != CUDA_SUCCESS) return result;
  auto event = std::make_shared<Event>();
  event->context = context->id;
  event->flags = CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC;
  event->shared = std::move(shared);
  place.Add(std::move(event));
  return CUDA_SUCCESS;
}

// Nothing to do: the commands before it have been executed.
CUresult Run(Executor&, const Command&, const rgpuIpcSettle_Request&, rgpuIpcSettle_Reply*) {
  return CUDA_SUCCESS;
}

}  // namespace rgpu::exec
