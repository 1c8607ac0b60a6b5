#include "rgpu_server/executor/context_order.h"

#include <utility>
#include <vector>

#include "rgpu_server/executor/executor.h"

namespace rgpu::exec {

namespace {

// Each is one more wait that every stream of the context issues with its next work. A driver's
// queue takes about 1000.
constexpr size_t kMostFences = 64;

// The stream in which whole contexts are observed. It is non-blocking, so the context's own streams
// do not wait for it.
CUresult Observer(Executor& executor, Context& context, std::shared_ptr<Stream>* observer) {
  if (context.observer == nullptr) {
    auto made = std::make_shared<Stream>();
    made->context = &context;
    made->blocking = false;
    const CUresult result =
        executor.driver()->cuStreamCreate(&made->handle, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS) return result;
    context.streams.push_back(made);
    context.observer = std::move(made);
  }
  *observer = context.observer;
  return CUDA_SUCCESS;
}

// Makes the stream wait for the destroyed streams of a context.
CUresult WaitForGone(Executor& executor, Stream& stream, Context& other) {
  const bool observes = &stream == other.observer.get();
  for (StreamEnd& end : other.gone) {
    if (end.point->done || (observes && end.observed)) continue;
    const CUresult result = executor.order().Issue(stream, {0, end.point}, [&](CUstream) {
      return executor.order().WaitFor(stream, *end.point, 0);
    });
    if (result != CUDA_SUCCESS) return result;
    stream.frontier.Merge(end.point->frontier);
    if (observes) end.observed = true;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult WaitForContext(Executor& executor, Stream& stream, Context& other) {
  CUresult result = CUDA_SUCCESS;
  for (const auto& one : std::vector(other.streams)) {
    std::shared_ptr<Point> point;
    result = executor.MakeCurrent(other);
    if (result == CUDA_SUCCESS) result = executor.order().EverythingIn(*one, false, &point);
    const CUresult back = executor.MakeCurrent(*stream.context);
    if (result == CUDA_SUCCESS) result = back;
    if (result != CUDA_SUCCESS) return result;
    // The observer waits once for each point, however often the context is recorded.
    const bool observes = &stream == other.observer.get();
    if (point == nullptr || one.get() == &stream || (observes && one->observed == point)) continue;
    result = executor.order().Issue(
        stream, {0, point}, [&](CUstream) { return executor.order().WaitFor(stream, *point, 0); });
    if (result != CUDA_SUCCESS) return result;
    stream.frontier.Merge(point->frontier);
    if (observes) one->observed = std::move(point);
  }
  return WaitForGone(executor, stream, other);
}

CUresult HoldBehind(Context& context, std::shared_ptr<Point> point, const Stream* legacy) {
  std::erase_if(context.fences, [&](const Fence& fence) {
    return fence.point->done || fence.point == point ||
           (legacy != nullptr && fence.source == legacy && !fence.legacy);
  });
  if (context.fences.size() >= kMostFences) return CUDA_ERROR_OUT_OF_MEMORY;
  context.fenced.Merge(point->frontier);
  context.fences.push_back({legacy, false, false, ++context.fence_epoch, std::move(point)});
  return CUDA_SUCCESS;
}

CUresult RecordContext(Executor& executor, Context& context, unsigned int flags,
                       std::shared_ptr<Point>* point) {
  std::shared_ptr<Stream> observer;
  CUresult result = Observer(executor, context, &observer);
  if (result == CUDA_SUCCESS) result = WaitForContext(executor, *observer, context);
  if (result != CUDA_SUCCESS) return result;
  return executor.order().Issue(
      *observer, {}, [&](CUstream) { return executor.order().Record(*observer, flags, point); });
}

void ReleaseHeld(Executor& executor, const Context& gone) {
  executor.objects().contexts.ForEach([&](const std::shared_ptr<Context>& other) {
    std::erase_if(other->fences,
                  [&](const Fence& fence) { return fence.point->pool == gone.events; });
  });
}

CUresult FindContext(Executor& executor, uint64_t id, std::shared_ptr<Context>* context) {
  const CUresult result = executor.objects().contexts.Share(id, context);
  if (result == kDropped) return kDropped;
  const bool lives = result == CUDA_SUCCESS && !(*context)->closing;
  return lives ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult Serially(Executor& executor, Stream& stream, Context& one, Context& two,
                  const std::function<CUresult()>& copy) {
  Context& own = *stream.context;
  CUresult result = WaitForContext(executor, stream, own);
  if (result == CUDA_SUCCESS) result = WaitForContext(executor, stream, one);
  if (result == CUDA_SUCCESS) result = WaitForContext(executor, stream, two);
  if (result == CUDA_SUCCESS) result = copy();
  if (result != CUDA_SUCCESS) return result;
  std::shared_ptr<Point> point;
  result = executor.order().Issue(stream, {}, [&](CUstream) {
    return executor.order().Record(stream, kInternalEvent, &point);
  });
  for (Context* context : {&own, &one, &two}) {
    if (result == CUDA_SUCCESS) {
      result = HoldBehind(*context, point, stream.legacy ? &stream : nullptr);
    }
  }
  return result;
}

}  // namespace rgpu::exec
