// Finds the context and stream that a command names.
#include "rgpu_server/executor/executor.h"

namespace rgpu::exec {

namespace {

// How many thread numbers are remembered, including those that got no stream.
constexpr size_t kMaxNamedThreads = 4096;

// Id of the context that is current on this thread of the worker, so that cuCtxSetCurrent is called
// only when it changes. Ids are never used again.
thread_local uint32_t t_current = 0;

}  // namespace

CUresult Executor::MakeCurrent(const Context& context) {
  if (t_current == context.id) return CUDA_SUCCESS;
  const CUresult result = driver_->cuCtxSetCurrent(context.handle);
  if (result == CUDA_SUCCESS) t_current = context.id;
  return result;
}

void Executor::EverythingInAll(bool quiet, std::vector<std::shared_ptr<Point>>* points) {
  const uint32_t before = t_current;
  contexts_.ForEach([&](const std::shared_ptr<Context>& context) {
    if (MakeCurrent(*context) == CUDA_SUCCESS) EverythingIn(*context, quiet, points);
  });
  // The running command continues in its own context.
  std::shared_ptr<Context> own;
  if (contexts_.Share(before, &own) == CUDA_SUCCESS) MakeCurrent(*own);
}

CUresult Executor::Enter(const Command& command, std::shared_ptr<Context>* context) {
  const uint32_t id = command.header.context;
  if (last_entered_ == nullptr || last_entered_->id != id) {
    std::shared_ptr<Context> found;
    const CUresult result = contexts_.Share(id, &found);
    if (result != CUDA_SUCCESS) return result == kDropped ? kDropped : CUDA_ERROR_INVALID_CONTEXT;
    last_entered_ = std::move(found);
  }
  *context = last_entered_;
  return MakeCurrent(**context);
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
  if (const CUresult result = streams_.Share(operand, &target->stream); result != CUDA_SUCCESS) {
    return result;
  }
  if (target->stream->context == target->context.get()) return CUDA_SUCCESS;
  target->context = target->stream->context->shared_from_this();
  return MakeCurrent(*target->context);
}

CUresult Executor::Find(const Command& command, uint64_t operand, Target* target) {
  const CUresult result = FindStream(command, operand, target);
  return result == CUDA_SUCCESS && target->stream->failed ? kDropped : result;
}

CUresult Executor::FindCredited(const Command& command, uint64_t operand, Target* target) {
  const CUresult found = FindStream(command, operand, target);
  if (found != CUDA_SUCCESS) {
    if (target->stream != nullptr && target->stream->failed) GiveBackCredit(*target->stream);
    return found;
  }
  Stream& stream = *target->stream;
  if (!stream.failed) {
    // Failed commands never reach Issued, which sets markers; so this sets one for them.
    if (stream.credited - stream.marked_credited >= kMarkCommands) {
      const CUresult result = Mark(stream, false);
      if (result != CUDA_SUCCESS) return result;
    }
    ++stream.credited;
    return CUDA_SUCCESS;
  }
  GiveBackCredit(stream);
  return kDropped;
}

void Executor::GiveBackCredit(Stream& stream) {
  ++stream.credited;
  ReturnCredits(stream, stream.credited);
}

bool Executor::has_streams() const {
  if (streams_.size() > 0) return true;
  bool found = false;
  contexts_.ForEach([&](const auto& context) { found |= !context->per_thread.empty(); });
  return found;
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
  context.streams.push_back(stream.shared_from_this());
  return CUDA_SUCCESS;
}

CUresult Executor::TooManyThreads() {
  Tell(Told::kThreads, "a thread needs a default stream of its own, and " +
                           std::to_string(kMaxThreads) +
                           " threads of this session have one; let threads end, or use streams "
                           "that you create");
  return CUDA_ERROR_OUT_OF_MEMORY;
}

void Executor::DropStream(Stream& stream) {
  Context& context = *stream.context;
  if (context.last == &stream) {
    if (!stream.failed) LeaveLast(stream);
    context.last = nullptr;
  }
  std::erase_if(context.streams, [&](const auto& other) { return other.get() == &stream; });
}

void Executor::DropThread(uint32_t thread) {
  deferred_.ThreadGone(thread);
  contexts_.ForEach([&](const std::shared_ptr<Context>& entry) {
    Context& context = *entry;
    const auto found = context.per_thread.find(thread);
    if (found == context.per_thread.end() || MakeCurrent(context) != CUDA_SUCCESS) return;
    const std::shared_ptr<Stream> stream = found->second;
    context.per_thread.erase(found);
    --named_threads_;
    if (stream->failed) return;
    --per_thread_streams_;
    if (!stream->unmarked_load.empty()) MarkNow(*stream);
    DropStream(*stream);
    // cuStreamDestroy lets the stream's work finish and does not wait for it.
    driver_->cuStreamDestroy_v2(stream->handle);
  });
}

uint64_t Executor::DropContext(const std::shared_ptr<Context>& context) {
  uint64_t charged = context->own_charged + context->local_charged + context->printf_charged +
                     context->heap_charged;
  const uint32_t id = context->id;
  const auto lies_in = [&](const auto& object) {
    if (object.context != context) return false;
    if constexpr (requires { object.charged_bytes; }) charged += object.charged_bytes;
    return true;
  };
  modules_.EraseIf(lies_in);
  libraries_.EraseIf(lies_in);
  links_.EraseIf(lies_in);
  const auto belongs = [&](const auto& object) { return object.context == id; };
  functions_.EraseIf(belongs);
  kernels_.EraseIf(belongs);
  events_.EraseIf(belongs);
  streams_.EraseIf([&](const Stream& stream) { return stream.context == context.get(); });
  ranges_.EraseIf([&](uint64_t base, const Range& range) {
    if (range.context != id) return false;
    if (range.kind == Range::Kind::kPlain) charged += granules_.Remove(base, range.bytes);
    return true;
  });
  poller_.Remove(*context);
  named_threads_ -= context->per_thread.size();
  for (const auto& [_, stream] : context->per_thread) per_thread_streams_ -= stream->failed ? 0 : 1;
  for (const auto& stream : context->streams) gate_.Forget(*stream);
  deferred_.DropContext(id);
  if (last_entered_ == context) last_entered_ = nullptr;
  context->dead = true;
  return charged;
}

}  // namespace rgpu::exec
