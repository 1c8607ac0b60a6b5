#include "rgpu_client/shim/calls/here.h"

#include <algorithm>

#include "rgpu_client/shim/paged/active.h"

namespace rgpu::shim {

Here AnyHere() { return {CurrentSession(), &ThisThread(), nullptr, nullptr}; }

Here AnyHere(uint64_t handle) { return {SessionOf(handle), &ThisThread(), nullptr, nullptr}; }

Here DeviceHere(CUdevice device) {
  return {SessionOfDevice(device), &ThisThread(), nullptr, nullptr};
}

Here InContextHere(CUcontext context) {
  return {SessionOfContext(HandleValue(context)), &ThisThread(), nullptr, nullptr};
}

Here AddressHere(uint64_t address) {
  return {SessionOfAddress(address), &ThisThread(), nullptr, nullptr};
}

namespace {

// Adds the thread's current context if it is of the session, or else a primary context of it.
Here WithSomeContext(Here here) {
  if (!here.thread->stack.empty()) here.context = here.thread->stack.back();
  if (here.context != nullptr && SessionOfContext(here.context->id) != here.session) {
    here.context = nullptr;
  }
  DeviceTable& devices = here.session->devices();
  for (int i = 0; here.context == nullptr && i < devices.count(); ++i) {
    Device& device = *devices.Find(i);
    if (device.session != here.session->number()) continue;
    const std::lock_guard lock(device.primary_mutex);
    here.context = device.primary;
  }
  return here;
}

}  // namespace

Here CodeHere() { return WithSomeContext(AnyHere()); }
Here CodeHere(uint64_t handle) { return WithSomeContext(AnyHere(handle)); }
Here CodeOnDevice(CUdevice device) { return WithSomeContext(DeviceHere(device)); }

CUresult ContextHere(Here* here) {
  *here = AnyHere();
  if (here->thread->stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  here->context = here->thread->stack.back();
  if (here->context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return here->context->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult StreamHere(CUstream handle, Here* here) {
  uint64_t value = HandleValue(handle);
  if (value > kWirePerThreadStream) {
    *here = AnyHere(value);
    here->stream = here->session->handles().Find<Stream>(value);
    if (here->stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    here->context = here->session->handles().Find<Context>(here->stream->context);
    return here->context != nullptr && here->context->alive ? CUDA_SUCCESS
                                                            : CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  if (const CUresult status = ContextHere(here); status != CUDA_SUCCESS) return status;
  if (value == 0 && here->thread->per_thread_stream) value = kWirePerThreadStream;
  if (value != kWirePerThreadStream) {
    here->stream = &here->context->legacy;
    return CUDA_SUCCESS;
  }
  Stream*& mine = here->thread->streams[here->context_id()];
  if (mine == nullptr) mine = here->session->PerThreadStream(*here->context, here->thread->number);
  here->stream = mine;
  return CUDA_SUCCESS;
}

PostOptions Work(const Here& here, Reach reach) {
  if (reach == Reach::kAny && PagedHas(kTrackedRanges | kMirrors)) [[unlikely]]
    here.session->paged().BeforeWork(here);
  PostOptions options;
  options.work = here.context;
  options.stream = here.stream;
  return options;
}

PostOptions CountedWork(const Here& here, uint64_t bytes, Reach reach) {
  PostOptions options = Work(here, reach);
  options.counted = true;
  options.credit_bytes = bytes;
  return options;
}

bool ThreadIsClean(const Here& here) {
  const uint64_t told = std::max(here.sent().reported_seq, here.context->synced_seq.load());
  return here.sent().posted_seq <= told;
}

void MarkSynced(std::atomic<uint64_t>& place, uint64_t seq) {
  uint64_t before = place.load();
  while (before < seq && !place.compare_exchange_weak(before, seq)) {
  }
}

}  // namespace rgpu::shim
