// Handlers: events of whole contexts, and copies between contexts.
#include "rgpu_server/executor/context_order.h"
#include "gen/dispatch.gen.h"
#include "rgpu_server/executor/copies.h"
#include "rgpu_server/executor/executor.h"

namespace rgpu::exec {

CUresult Run(Executor& executor, const Command&, const rgpuContextRecordEvent_Request& request,
             rgpuContextRecordEvent_Reply*) {
  std::shared_ptr<Context> context;
  CUresult result = FindContext(executor, request.ctx, &context);
  if (result == CUDA_SUCCESS) result = executor.MakeCurrent(*context);
  if (result != CUDA_SUCCESS) return result;
  Event* event = nullptr;
  result = executor.objects().events.Find(request.event, &event);
  if (result != CUDA_SUCCESS) return result;
  if (event->context != context->id) return CUDA_ERROR_INVALID_HANDLE;
  if (event->shared != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  std::shared_ptr<Point> point;
  result = RecordContext(executor, *context, event->flags, &point);
  if (point == nullptr) return result;
  event->current = std::move(point);
  event->version = request.version;
  return result;
}

CUresult Run(Executor& executor, const Command&, const rgpuContextWaitEvent_Request& request,
             rgpuContextWaitEvent_Reply*) {
  std::shared_ptr<Context> context;
  CUresult result = FindContext(executor, request.ctx, &context);
  if (result != CUDA_SUCCESS) return result;
  Event* event = nullptr;
  result = executor.objects().events.Find(request.event, &event);
  if (result == CUDA_SUCCESS && event->shared != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (result != CUDA_SUCCESS || event->current == nullptr) return result;
  return HoldBehind(*context, event->current, nullptr);
}

CUresult Run(Executor& executor, const Command& command, const rgpuCopyPeer_Request& request,
             rgpuCopyPeer_Reply*) {
  Target target;
  CUresult result = executor.FindCredited(command, request.stream, &target);
  if (result != CUDA_SUCCESS) return result;
  std::shared_ptr<Context> to;
  std::shared_ptr<Context> from;
  result = FindContext(executor, request.dst_context, &to);
  if (result == CUDA_SUCCESS) result = FindContext(executor, request.src_context, &from);
  uint64_t total = 0;
  const uint64_t bytes = request.bytes;
  if (result == CUDA_SUCCESS) result = CheckRows(executor, {request.dst, bytes, bytes, 1}, &total);
  if (result == CUDA_SUCCESS) result = CheckRows(executor, {request.src, bytes, bytes, 1}, &total);
  if (result != CUDA_SUCCESS || total == 0) return result;
  executor.ledger().CountCopy(total);
  const Driver& driver = executor.driver();
  const auto copy = [&] {
    return executor.order().Issue(
        *target.stream, {0, nullptr, &executor.copies().within, total}, [&](CUstream stream) {
          return driver->cuMemcpyPeerAsync(request.dst, to->handle, request.src, from->handle,
                                           bytes, stream);
        });
  };
  return request.serial != 0 ? Serially(executor, *target.stream, *to, *from, copy) : copy();
}

}  // namespace rgpu::exec
