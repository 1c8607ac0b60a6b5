#include "rgpu_server/executor/shared_events.h"

#include "rgpu_server/executor/executor.h"

namespace rgpu::exec {

namespace {

CUresult OpenObserver(Executor& executor, SharedEvent& event) {
  if (event.observer != nullptr) return CUDA_SUCCESS;
  auto made = std::make_shared<Stream>();
  made->context = event.context.get();
  made->blocking = false;
  const CUresult result = executor.driver()->cuStreamCreate(&made->handle, CU_STREAM_NON_BLOCKING);
  if (result != CUDA_SUCCESS) return result;
  event.context->streams.push_back(made);
  event.observer = std::move(made);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult RecordShared(Executor& executor, SharedEvent& event, Stream& stream) {
  const CUresult result = executor.order().Issue(stream, {}, [&](CUstream handle) {
    return executor.driver()->cuEventRecord(event.handle, handle);
  });
  if (result == CUDA_SUCCESS) event.frontier.Merge(stream.frontier);
  return result;
}

CUresult WaitForShared(Executor& executor, const SharedEvent& event, Stream& stream) {
  // The order of what other processes do is not known here.
  executor.OrderIsHidden();
  const CUresult result = executor.order().Issue(stream, {}, [&](CUstream handle) {
    return executor.driver()->cuStreamWaitEvent(handle, event.handle, 0);
  });
  if (result == CUDA_SUCCESS) stream.frontier.Merge(event.frontier);
  return result;
}

CUresult QueryShared(Executor& executor, SharedEvent& event) {
  const CUresult result = executor.driver()->cuEventQuery(event.handle);
  if (result != CUDA_SUCCESS) return result;
  return event.frontier.Settle() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult ObserveShared(Executor& executor, SharedEvent& event, std::shared_ptr<Point>* point) {
  *point = nullptr;
  CUresult result = QueryShared(executor, event);
  if (result != CUDA_ERROR_NOT_READY) return result;
  result = OpenObserver(executor, event);
  if (result == CUDA_SUCCESS) result = WaitForShared(executor, event, *event.observer);
  if (result != CUDA_SUCCESS) return result;
  return executor.order().Issue(*event.observer, {}, [&](CUstream) {
    return executor.order().Record(*event.observer, kInternalEvent, point);
  });
}

void DropShared(Executor& executor, const std::shared_ptr<SharedEvent>& event) {
  if (event->exported != nullptr) executor.exports().Retire(event->exported);
  const bool lives = !event->context->dead && executor.MakeCurrent(*event->context) == CUDA_SUCCESS;
  if (event->observer != nullptr && lives) {
    Stream& observer = *event->observer;
    if (observer.issued > observer.marked) executor.order().MarkNow(observer);
    executor.order().Drop(observer);
    executor.driver()->cuStreamDestroy_v2(observer.handle);
  }
  const Driver& driver = executor.driver();
  executor.reaper().AddBehind({}, event->context,
                              [&driver, event] { driver->cuEventDestroy_v2(event->handle); }, {});
}

}  // namespace rgpu::exec
