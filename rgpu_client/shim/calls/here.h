// The surroundings of a call: its session, thread and current context, and the stream that it
// names.
#pragma once

#include <cstdint>

#include "gen/cuda_abi.gen.h"
#include "rgpu_client/shim/runtime.h"
#include "rgpu_client/shim/thread_state.h"

namespace rgpu::shim {

struct Here {
  Session* session = nullptr;
  ThreadState* thread = nullptr;
  Context* context = nullptr;  // null only after AnyHere and CodeHere
  Stream* stream = nullptr;    // only after StreamHere

  Sent& sent() const { return thread->sent[session->number()]; }
  Channel& channel() const { return session->channel(); }
  Issuer issuer() const {
    return {thread, context == nullptr ? 0 : static_cast<uint32_t>(context->id)};
  }
  uint32_t context_id() const { return static_cast<uint32_t>(context->id); }
};

// The calling thread and the session of its current context, or else the first session.
Here AnyHere();
// The same, with the session of the object, device, context or address that the call names.
Here AnyHere(uint64_t handle);
Here DeviceHere(CUdevice device);
Here InContextHere(CUcontext context);
Here AddressHere(uint64_t address);
// The same, with a context for calls that need none, because the worker takes the device from it:
// the thread's current context, or else a primary context. Null: the process has neither.
Here CodeHere();
// The same, in the session of a library, kernel or pool, and in that of a device.
Here CodeHere(uint64_t handle);
Here CodeOnDevice(CUdevice device);
// Adds the thread's current context. CUDA_ERROR_INVALID_CONTEXT: the thread has none.
// CUDA_ERROR_CONTEXT_IS_DESTROYED: it has been destroyed.
CUresult ContextHere(Here* here);
// Adds the stream of `handle` and the stream's context. Stream 0 is the per-thread stream in a
// `_ptds` or `_ptsz` function, and the legacy stream in all others.
CUresult StreamHere(CUstream handle, Here* here);

// What memory a command uses.
enum class Reach : uint8_t {
  kAny,    // any memory of the device, as a kernel may: pages of the program are sent first
  kNamed,  // none, or only what the caller has passed to PagedMemory::BeforeUse
};

// The options of a command that is work in here.stream.
PostOptions Work(const Here& here, Reach reach = Reach::kAny);
// The same, for a command that also takes a credit.
PostOptions CountedWork(const Here& here, uint64_t bytes, Reach reach = Reach::kAny);

// True if no command that this thread posted can have an error that has not been reported to it.
bool ThreadIsClean(const Here& here);
// Raises `place` to `seq`, if it is lower.
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
