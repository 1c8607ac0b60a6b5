// Where a call stands: session, thread, current context; and the stream it names.
#pragma once

#include <cstdint>

#include "gen/cuda_abi.gen.h"
#include "rgpu_client/shim/runtime.h"
#include "rgpu_client/shim/thread_state.h"

namespace rgpu::shim {

struct Here {
  Session* session = nullptr;
  ThreadState* thread = nullptr;
  Context* context = nullptr;  // null only after AnyHere
  Stream* stream = nullptr;    // only after StreamHere

  Channel& channel() const { return session->channel(); }
  Issuer issuer() const {
    return {thread, context == nullptr ? 0 : static_cast<uint32_t>(context->id)};
  }
  uint32_t context_id() const { return static_cast<uint32_t>(context->id); }
};

// The calling thread without a context.
Here AnyHere();
// The calling thread's current context: CUDA_ERROR_INVALID_CONTEXT if it has none,
// CUDA_ERROR_CONTEXT_IS_DESTROYED if it is gone.
CUresult ContextHere(Here* here);
// The stream and its context; 0 is the legacy or the per-thread stream by the function called.
CUresult StreamHere(CUstream handle, Here* here);

// Options of a command that is work in here.stream.
PostOptions Work(const Here& here);
// The same for one that takes a credit.
PostOptions CountedWork(const Here& here, uint64_t bytes);

// True if nothing that this thread posted can have an error that it has not been told.
bool ThreadIsClean(const Here& here);
// Everything up to `seq` in the context is known to be complete.
void MarkSynced(std::atomic<uint64_t>& place, uint64_t seq);

template <typename T>
uint64_t HandleValue(T handle) {
  return reinterpret_cast<uint64_t>(handle);
}
template <typename T>
T MakeHandle(uint64_t id) {
  return reinterpret_cast<T>(id);
}

}  // namespace rgpu::shim
