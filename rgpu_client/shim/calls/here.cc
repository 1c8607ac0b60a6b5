#include "rgpu_client/shim/calls/here.h"

#include <algorithm>

#include "rgpu_client/shim/paged/active.h"

namespace rgpu::shim {

Here AnyHere() { return {CurrentSession(), &ThisThread(), nullptr, nullptr}; }

Here CodeHere() {
  Here here = AnyHere();
  if (!here.thread->stack.empty()) here.context = here.thread->stack.back();
  DeviceTable& devices = here.session->devices();
  for (int i = 0; here.context == nullptr && i < devices.count(); ++i) {
    Device& device = *devices.Find(i);
    const std::lock_guard lock(device.primary_mutex);
    here.context = device.primary;
  }
  return here;
}

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
    *here = AnyHere();
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
  const uint64_t told = std::max(here.thread->reported_seq, here.context->synced_seq.load());
  return here.thread->posted_seq <= told;
}

void MarkSynced(std::atomic<uint64_t>& place, uint64_t seq) {
  uint64_t before = place.load();
  while (before < seq && !place.compare_exchange_weak(before, seq)) {
  }
}

}  // namespace rgpu::shim
