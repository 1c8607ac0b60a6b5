// Handlers: events. Each record of a client's event uses another driver event.
#include "gen/dispatch.gen.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/shared_events.h"

namespace rgpu::exec {

CUresult Run(Executor& executor, const Command& command, const rgpuEventCreate_Request& request,
             rgpuEventCreate_Reply*) {
  std::shared_ptr<Context> context;
  CUresult result = executor.Enter(command, &context);
  if (result != CUDA_SUCCESS) return result;
  result = executor.objects().events.CanAdd(request.event);
  if (result == CUDA_ERROR_INVALID_HANDLE) return result;
  constexpr unsigned int kKnown =
      CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  if (result == CUDA_SUCCESS && (request.flags & ~kKnown) != 0) result = CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<SharedEvent> shared;
  if (result == CUDA_SUCCESS && (request.flags & CU_EVENT_INTERPROCESS) != 0) {
    shared = std::make_shared<SharedEvent>();
    shared->context = context;
    result = executor.driver()->cuEventCreate(&shared->handle, request.flags);
  }
  if (result != CUDA_SUCCESS) {
    executor.objects().events.AddFailed(request.event);
    return result;
  }
  auto event = std::make_shared<Event>();
  event->context = context->id;
  // Waiting threads of the worker sleep, however the client's thread waits.
  event->flags = (request.flags & CU_EVENT_DISABLE_TIMING) | CU_EVENT_BLOCKING_SYNC;
  event->shared = std::move(shared);
  executor.objects().events.Add(request.event, std::move(event));
  return CUDA_SUCCESS;
}

// The driver event returns to its pool when no thread waits for it any more.
CUresult Run(Executor& executor, const Command&, const rgpuEventDestroy_Request& request,
             rgpuEventDestroy_Reply*) {
  std::shared_ptr<Event> event;
  const CUresult result = executor.objects().events.Take(request.event, &event);
  if (result == CUDA_SUCCESS && event->shared != nullptr) DropShared(executor, event->shared);
  return result;
}

CUresult Run(Executor& executor, const Command& command, const rgpuEventRecord_Request& request,
             rgpuEventRecord_Reply*) {
  Target target;
  CUresult result = executor.Find(command, request.stream, &target);
  if (result != CUDA_SUCCESS) return result;
  Event* event = nullptr;
  result = executor.objects().events.Find(request.event, &event);
  if (result != CUDA_SUCCESS) return result;
  if (event->context != target.context->id) return CUDA_ERROR_INVALID_HANDLE;
  // External records are for stream capture only.
  if (request.flags != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (event->shared != nullptr) return RecordShared(executor, *event->shared, *target.stream);
  std::shared_ptr<Point> point;
  result = executor.order().Issue(*target.stream, {}, [&](CUstream) {
    return event->fixed == nullptr
               ? executor.order().Record(*target.stream, event->flags, &point)
               : executor.order().RecordAgain(*target.stream, event->fixed, &point);
  });
  if (point == nullptr) return result;
  target.stream->recorded = point;
  target.stream->recorded_at = target.stream->issued;
  event->current = std::move(point);
  event->version = request.version;
  return result;
}

CUresult Run(Executor& executor, const Command& command, const rgpuEventQuery_Request& request,
             rgpuEventQuery_Reply*) {
  Event* event = nullptr;
  CUresult result = executor.objects().events.Find(request.event, &event);
  if (result != CUDA_SUCCESS) return result;
  if (event->current == nullptr && event->shared == nullptr) return CUDA_SUCCESS;
  std::shared_ptr<Context> context;
  result = executor.Enter(command, &context);
  if (result != CUDA_SUCCESS) return result;
  if (event->shared != nullptr) return QueryShared(executor, *event->shared);
  result = executor.Query(*event->current);
  if (result == CUDA_ERROR_NOT_READY && request.notify != 0) {
    executor.poller().Watch({request.event, event->version, 0, event->context, event->current});
  }
  return result;
}

CUresult Run(Executor& executor, const Command& command,
             const rgpuEventSynchronize_Request& request, rgpuEventSynchronize_Reply*) {
  Event* event = nullptr;
  CUresult result = executor.objects().events.Find(request.event, &event);
  if (result != CUDA_SUCCESS) return result;
  std::shared_ptr<Point> point = event->current;
  std::shared_ptr<Context> context;
  result = executor.Enter(command, &context);
  if (result != CUDA_SUCCESS) return result;
  if (event->shared != nullptr) {
    const std::shared_ptr<SharedEvent> shared = event->shared;
    result = ObserveShared(executor, *shared, &point);
    if (result == CUDA_SUCCESS) result = executor.Wait(point, context->id);
    if (result == CUDA_SUCCESS) executor.memory().TrimAfterWait(point.get());
    return result;
  }
  result = executor.Wait(point, context->id);
  if (result == CUDA_SUCCESS) executor.memory().TrimAfterWait(point.get());
  if (point != nullptr) executor.ComesBehind(command, &point->frontier);
  return result;
}

CUresult Run(Executor& executor, const Command& command,
             const rgpuEventElapsedTime_Request& request, rgpuEventElapsedTime_Reply* reply) {
  Event* start = nullptr;
  Event* end = nullptr;
  CUresult result = executor.objects().events.Find(request.start, &start);
  if (result == CUDA_SUCCESS) result = executor.objects().events.Find(request.end, &end);
  if (result != CUDA_SUCCESS) return result;
  if (start->current == nullptr || end->current == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::shared_ptr<Context> context;
  result = executor.Enter(command, &context);
  if (result != CUDA_SUCCESS) return result;
  if (executor.driver()->cuEventElapsedTime_v2 == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return executor.driver()->cuEventElapsedTime_v2(&reply->milliseconds, start->current->event,
                                                  end->current->event);
}

}  // namespace rgpu::exec
