// Handlers: streams, and values in memory that streams wait for.
#include "gen/dispatch.gen.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/shared_events.h"

namespace rgpu::exec {

namespace {

constexpr size_t kMaxFailed = 64U << 10;

CUresult Create(Executor& executor, const Command& command, const rgpuStreamCreate_Request& request,
                bool unfenced) {
  std::shared_ptr<Context> context;
  CUresult result = executor.Enter(command, &context);
  if (result != CUDA_SUCCESS) return result;
  result = executor.objects().streams.CanAdd(request.stream);
  if (result == CUDA_ERROR_INVALID_HANDLE) return result;
  // A failed stream is kept so that its commands return their credits. The number of failed streams
  // is limited.
  if (!executor.objects().streams.CanFail() ||
      executor.objects().streams.size() >= kMaxStreams + kMaxFailed) {
    return result;
  }
  auto stream = std::make_shared<Stream>();
  stream->id = request.stream;
  stream->context = context.get();
  stream->blocking = (request.flags & CU_STREAM_NON_BLOCKING) == 0;
  stream->unfenced = unfenced;
  if (result == CUDA_SUCCESS) {
    result = executor.driver()->cuStreamCreateWithPriority(&stream->handle, request.flags,
                                                           request.priority);
  }
  stream->failed = result != CUDA_SUCCESS;
  if (!stream->failed) context->streams.push_back(stream);
  executor.objects().streams.Add(request.stream, std::move(stream));
  return result;
}

// The halt behind a wait for a value.  The stream may be gone while its function runs.
struct ValueWait : std::enable_shared_from_this<ValueWait> {
  explicit ValueWait(Gate& its_gate) : gate(its_gate) {}
  Gate& gate;
  WaitPlace place;
};

void GoOn(void* opaque) {
  const std::shared_ptr<ValueWait> wait = static_cast<ValueWait*>(opaque)->shared_from_this();
  wait->gate.GoOn(wait->place);
}

CUresult WaitForValue(const Driver& driver, CUstream stream,
                      const rgpuStreamWaitValue_Request& request) {
  return request.width == 4
             ? driver->cuStreamWaitValue32_v2(stream, request.address,
                                              static_cast<cuuint32_t>(request.value), request.flags)
             : driver->cuStreamWaitValue64_v2(stream, request.address, request.value,
                                              request.flags);
}

// True if nothing is issued behind an event that is complete. The stream's marker lies behind the
// event and may complete a moment later, when the program knows already that the event is complete.
bool EndsWithCompleteEvent(Executor& executor, const Stream& stream) {
  const std::shared_ptr<Point> recorded = stream.recorded.lock();
  return recorded != nullptr && stream.recorded_at == stream.issued &&
         executor.Query(*recorded) == CUDA_SUCCESS;
}

}  // namespace

CUresult Run(Executor& executor, const Command& command, const rgpuStreamCreate_Request& request,
             rgpuStreamCreate_Reply*) {
  return Create(executor, command, request, false);
}

CUresult Run(Executor& executor, const Command& command,
             const rgpuPageStreamCreate_Request& request, rgpuPageStreamCreate_Reply*) {
  return Create(executor, command, {request.stream, CU_STREAM_NON_BLOCKING, 0}, true);
}

CUresult Run(Executor& executor, const Command& command, const rgpuStreamDestroy_Request& request,
             rgpuStreamDestroy_Reply*) {
  Target target;
  if (request.stream < kFirstHandle) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult result = executor.Find(command, request.stream, &target);
  if (result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_INVALID_CONTEXT) return result;
  std::shared_ptr<Stream> stream;
  executor.objects().streams.Take(request.stream, &stream);
  if (result != CUDA_SUCCESS) return result;
  // Staging memory, credits and deliveries of the stream are still outstanding: the poller keeps
  // the stream until they are settled.
  std::shared_ptr<Point> rest;
  executor.order().EverythingIn(*stream, false, &rest);
  executor.order().Drop(*stream);
  const Driver& driver = executor.driver();
  std::vector<std::shared_ptr<Point>> fences;
  if (rest != nullptr) fences.push_back(std::move(rest));
  executor.reaper().AddBehind(std::move(fences), target.context,
                              [&driver, stream] { driver->cuStreamDestroy_v2(stream->handle); },
                              {});
  return CUDA_SUCCESS;
}

CUresult Run(Executor& executor, const Command& command,
             const rgpuStreamSynchronize_Request& request, rgpuStreamSynchronize_Reply*) {
  Target target;
  CUresult result = executor.Find(command, request.stream, &target);
  if (result != CUDA_SUCCESS) return result;
  std::shared_ptr<Point> point;
  result = executor.order().EverythingIn(*target.stream, true, &point);
  if (result == CUDA_SUCCESS) result = executor.Wait(point, target.context->id);
  // A wait for the legacy stream also covers other streams, so its reply stays behind all
  // deliveries.
  if (!target.stream->legacy) {
    executor.ComesBehind(command, point ? &point->frontier : &target.stream->frontier);
  }
  if (!target.context->dead) executor.order().Advance(*target.stream);
  if (result == CUDA_SUCCESS) executor.memory().TrimAfterWait(point.get());
  return result;
}

CUresult Run(Executor& executor, const Command& command, const rgpuStreamQuery_Request& request,
             rgpuStreamQuery_Reply*) {
  Target target;
  CUresult result = executor.Find(command, request.stream, &target);
  if (result != CUDA_SUCCESS) return result;
  std::shared_ptr<Point> point;
  result = executor.order().EverythingIn(*target.stream, true, &point);
  if (result != CUDA_SUCCESS || point == nullptr) return result;
  result = executor.Query(*point);
  if (result == CUDA_ERROR_NOT_READY && EndsWithCompleteEvent(executor, *target.stream)) {
    return CUDA_SUCCESS;
  }
  if (result == CUDA_ERROR_NOT_READY && request.notify != 0) {
    executor.poller().Watch({request.stream, request.version, target.stream->thread,
                             target.context->id, std::move(point)});
  }
  return result;
}

CUresult Run(Executor& executor, const Command& command, const rgpuStreamWaitEvent_Request& request,
             rgpuStreamWaitEvent_Reply*) {
  Target target;
  CUresult result = executor.Find(command, request.stream, &target);
  if (result != CUDA_SUCCESS) return result;
  Event* event = nullptr;
  result = executor.objects().events.Find(request.event, &event);
  if (result != CUDA_SUCCESS) return result;
  if (event->shared != nullptr) return WaitForShared(executor, *event->shared, *target.stream);
  const std::shared_ptr<Point> point = event->current;
  if (point == nullptr) return CUDA_SUCCESS;  // never recorded: nothing to wait for
  result = executor.order().Issue(*target.stream, {0, point}, [&](CUstream) {
    return executor.order().WaitFor(*target.stream, *point, request.flags);
  });
  if (result == CUDA_SUCCESS) {
    target.stream->frontier.Merge(point->frontier);
  }
  return result;
}

CUresult Run(Executor& executor, const Command& command, const rgpuStreamWaitValue_Request& request,
             rgpuStreamWaitValue_Reply*) {
  Target target;
  CUresult result = executor.Find(command, request.stream, &target);
  if (result != CUDA_SUCCESS) return result;
  if (request.width != 4 && request.width != 8) return CUDA_ERROR_INVALID_VALUE;
  result = executor.objects().ranges.Check(request.address, request.width);
  if (result != CUDA_SUCCESS) return result;
  executor.OrderIsHidden();
  StreamOrder& order = executor.order();
  // Without a gate nobody else waits for the device.
  const auto wait = executor.gate().on() ? std::make_shared<ValueWait>(executor.gate()) : nullptr;
  return order.Issue(*target.stream, {0, wait}, [&](CUstream stream) {
    const auto call = [&] { return WaitForValue(executor.driver(), stream, request); };
    if (wait == nullptr) return call();
    return order.WaitForValue(*target.stream, GoOn, wait.get(), &wait->place, call);
  });
}

CUresult Run(Executor& executor, const Command& command,
             const rgpuStreamWriteValue_Request& request, rgpuStreamWriteValue_Reply*) {
  Target target;
  CUresult result = executor.Find(command, request.stream, &target);
  if (result != CUDA_SUCCESS) return result;
  if (request.width != 4 && request.width != 8) return CUDA_ERROR_INVALID_VALUE;
  result = executor.objects().ranges.Check(request.address, request.width);
  if (result != CUDA_SUCCESS) return result;
  const Driver& driver = executor.driver();
  return executor.order().Issue(*target.stream, {}, [&](CUstream stream) {
    return request.width == 4
               ? driver->cuStreamWriteValue32_v2(
                     stream, request.address, static_cast<cuuint32_t>(request.value), request.flags)
               : driver->cuStreamWriteValue64_v2(stream, request.address, request.value,
                                                 request.flags);
  });
}

}  // namespace rgpu::exec
