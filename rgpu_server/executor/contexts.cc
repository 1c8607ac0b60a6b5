// Finds the context and stream that a command names.
#include "rgpu_server/executor/context_order.h"
#include "rgpu_server/executor/executor.h"

namespace rgpu::exec {

namespace {

// How many thread numbers are remembered, including those that got no stream.
constexpr size_t kMaxNamedThreads = 4096;

// The context that is current on this thread of the worker, so that cuCtxSetCurrent is called only
// when it changes.
struct Current {
  uint64_t serial = 0;  // 0: none
  uint32_t id = 0;
};
thread_local Current t_current;

}  // namespace

CUresult Executor::MakeCurrent(const Context& context) {
  if (t_current.serial == context.serial) return CUDA_SUCCESS;
  const CUresult result = driver_->cuCtxSetCurrent(context.handle);
  if (result == CUDA_SUCCESS) t_current = {context.serial, context.id};
  return result;
}

void Executor::EverythingInAll(bool quiet, std::vector<std::shared_ptr<Point>>* points) {
  const uint32_t before = t_current.id;
  objects_.contexts.ForEach([&](const std::shared_ptr<Context>& context) {
    if (MakeCurrent(*context) == CUDA_SUCCESS) order_.EverythingIn(*context, quiet, points);
  });
  // The running command continues in its own context.
  std::shared_ptr<Context> own;
  if (objects_.contexts.Share(before, &own) == CUDA_SUCCESS) MakeCurrent(*own);
}

CUresult Executor::Enter(const Command& command, std::shared_ptr<Context>* context) {
  const uint32_t id = command.header.context;
  if (last_entered_ == nullptr || last_entered_->id != id) {
    std::shared_ptr<Context> found;
    const CUresult result = objects_.contexts.Share(id, &found);
    if (result != CUDA_SUCCESS) return result == kDropped ? kDropped : CUDA_ERROR_INVALID_CONTEXT;
    last_entered_ = std::move(found);
  }
  *context = last_entered_;
  return (*context)->closing ? CUDA_ERROR_INVALID_CONTEXT : MakeCurrent(**context);
}

CUresult Executor::FindStream(const Command& command, uint64_t operand, Target* target) {
  if (const CUresult result = Enter(command, &target->context); result != CUDA_SUCCESS) {
    return result;
  }
  if (operand == kLegacyOperand) {
    target->stream = target->context->legacy;
    return CUDA_SUCCESS;
  }
  if (operand == kPerThreadOperand) {
    return PerThreadStream(*target->context, command.header.thread, &target->stream);
  }
  if (const CUresult result = objects_.streams.Share(operand, &target->stream);
      result != CUDA_SUCCESS) {
    return result;
  }
  if (target->stream->context == target->context.get()) return CUDA_SUCCESS;
  target->context = target->stream->context->shared_from_this();
  return target->context->closing ? CUDA_ERROR_INVALID_CONTEXT : MakeCurrent(*target->context);
}

CUresult Executor::Find(const Command& command, uint64_t operand, Target* target) {
  const CUresult result = FindStream(command, operand, target);
  return result == CUDA_SUCCESS && target->stream->failed ? kDropped : result;
}

CUresult Executor::FindCredited(const Command& command, uint64_t operand, Target* target) {
  const CUresult found = FindStream(command, operand, target);
  Stream* stream = target->stream.get();
  if (stream != nullptr && stream->failed) {
    order_.GiveBackCredit(*stream);
    return found == CUDA_SUCCESS ? kDropped : found;
  }
  return found == CUDA_SUCCESS ? order_.CountCredit(*stream) : found;
}

// The driver's own per-thread streams belong to the worker's threads, not to the client's, so each
// client thread gets a stream of its own. If the session has no room for one, a failed stream is
// kept: its commands fail and return their credits.
CUresult Executor::PerThreadStream(Context& context, uint32_t thread,
                                   std::shared_ptr<Stream>* stream) {
  const auto found = context.per_thread.find(thread);
  if (found != context.per_thread.end()) {
    *stream = found->second;
    return (*stream)->failed ? OpenPerThread(context, **stream) : CUDA_SUCCESS;
  }
  if (named_threads_ >= kMaxNamedThreads) return TooManyThreads();
  ++named_threads_;
  *stream = std::make_shared<Stream>();
  (*stream)->id = kPerThreadOperand;
  (*stream)->thread = thread;
  (*stream)->context = &context;
  (*stream)->failed = true;
  context.per_thread.emplace(thread, *stream);
  return OpenPerThread(context, **stream);
}

CUresult Executor::OpenPerThread(Context& context, Stream& stream) {
  if (per_thread_streams_ >= kMaxThreads) return TooManyThreads();
  const CUresult result = driver_->cuStreamCreate(&stream.handle, CU_STREAM_DEFAULT);
  if (result != CUDA_SUCCESS) return result;
  stream.failed = false;
  ++per_thread_streams_;
  context.streams.push_back(stream.Share());
  return CUDA_SUCCESS;
}

CUresult Executor::TooManyThreads() {
  Tell(Told::kThreads, "a thread needs a default stream of its own, and " +
                           std::to_string(kMaxThreads) +
                           " threads of this session have one; let threads end, or use streams "
                           "that you create");
  return CUDA_ERROR_OUT_OF_MEMORY;
}

void Executor::DropThread(uint32_t thread) {
  deferred_.ThreadGone(thread);
  objects_.contexts.ForEach([&](const std::shared_ptr<Context>& entry) {
    Context& context = *entry;
    const auto found = context.per_thread.find(thread);
    if (found == context.per_thread.end() || MakeCurrent(context) != CUDA_SUCCESS) return;
    const std::shared_ptr<Stream> stream = found->second;
    context.per_thread.erase(found);
    --named_threads_;
    if (stream->failed) return;
    --per_thread_streams_;
    // The end of the context waits for the last marker.
    if (stream->issued > stream->marked) order_.MarkNow(*stream);
    order_.Drop(*stream);
    // cuStreamDestroy lets the stream's work finish and does not wait for it.
    driver_->cuStreamDestroy_v2(stream->handle);
  });
}

uint64_t Executor::DropContext(const std::shared_ptr<Context>& context) {
  const auto forget = [this](uint64_t base, const Range& range) {
    return memory_.Forget(base, range);
  };
  const uint64_t charged = objects_.ForgetContext(context, forget) + context->own_charged +
                           context->local_charged + context->printf_charged + context->heap_charged;
  ReleaseHeld(*this, *context);
  poller_.Remove(*context);
  named_threads_ -= context->per_thread.size();
  for (const auto& [_, stream] : context->per_thread) per_thread_streams_ -= stream->failed ? 0 : 1;
  for (const auto& stream : context->streams) gate_.Forget(*stream);
  deferred_.DropContext(context->id);
  if (last_entered_ == context) last_entered_ = nullptr;
  context->dead = true;
  return charged;
}

}  // namespace rgpu::exec
