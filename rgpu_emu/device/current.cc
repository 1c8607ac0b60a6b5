// State of a thread: its context stack, its per-thread default streams, and the state of the
// running entry point.
#include <pthread.h>

#include <vector>

#include "gen/errors.gen.h"
#include "rgpu_common/native/base/error_log.h"
#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/entry.h"

namespace rgpu::emu {
namespace {

std::atomic<bool> forked{false};

struct ThreadLocal {
  std::vector<std::shared_ptr<Context>> stack;
  // Contexts in which this thread has used its per-thread default stream.
  std::vector<std::weak_ptr<Context>> streamed;
  bool per_thread_default = false;
  bool in_host_function = false;

  ~ThreadLocal() {
    // A forked child may have inherited locks that no thread will release.
    if (forked.load(std::memory_order_relaxed)) return;
    for (const auto& weak : streamed) {
      if (const auto context = weak.lock()) context->DropPerThread(std::this_thread::get_id());
    }
  }
};

ThreadLocal& Local() {
  thread_local ThreadLocal local;
  return local;
}

// A primary context that was reset, or released and retained again, keeps its handle. So a thread
// on which it was current now uses the new one.
std::shared_ptr<Context> Renewed(const std::shared_ptr<Context>& context) {
  if (!context->primary) return nullptr;
  PrimaryContext& primary = TheDevice().primary;
  const std::lock_guard lock(primary.mutex);
  return primary.context;
}

}  // namespace

bool PerThreadDefault() { return Local().per_thread_default; }
void SetInHostFunction(bool in) { Local().in_host_function = in; }

// For the log of cuLogs*.
void EntryGuard::NoteFailure(CUresult result) const {
  base::LogFailure(kCallNames[index_], result, ErrorName(result));
}

CUresult Unsupported(uint32_t index, CUresult answer) {
  base::LogRefusal(kCallNames[index], "the emulated device", CallReason(index));
  return answer;
}

EntryGuard::EntryGuard(uint32_t index, uint32_t flags) : index_(index) {
  ThreadLocal& local = Local();
  outer_per_thread_ = local.per_thread_default;
  if ((flags & kPerThreadStream) != 0) local.per_thread_default = true;
  if ((flags & kNeedsInit) != 0) {
    if (!Initialized() || forked.load(std::memory_order_relaxed)) {
      status_ = CUDA_ERROR_NOT_INITIALIZED;
    } else if (local.in_host_function) {
      status_ = CUDA_ERROR_NOT_PERMITTED;
    }
  }
  // A thread cancelled inside the call would leave locks held.
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_);
}

EntryGuard::~EntryGuard() {
  Local().per_thread_default = outer_per_thread_;
  pthread_setcancelstate(cancel_state_, nullptr);
}

CUresult EntryGuard::LeaveInContext(CUresult error) {
  const auto& contexts = Local().stack;
  const bool none = contexts.empty() || contexts.back() == nullptr;
  return Leave(none ? CUDA_ERROR_INVALID_CONTEXT : error);
}

void WatchFork() {
  pthread_atfork(nullptr, nullptr, [] { forked.store(true); });
}
bool Forked() { return forked.load(std::memory_order_relaxed); }

CUresult AnyCurrentContext(std::shared_ptr<Context>* context) {
  ThreadLocal& local = Local();
  if (local.stack.empty() || local.stack.back() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  std::shared_ptr<Context>& top = local.stack.back();
  if (top->dying()) {
    auto renewed = Renewed(top);
    if (renewed == nullptr || renewed->dying()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    top = std::move(renewed);
  }
  *context = top;
  return CUDA_SUCCESS;
}

CUresult CurrentContext(std::shared_ptr<Context>* context) {
  const CUresult found = AnyCurrentContext(context);
  return found == CUDA_SUCCESS ? (*context)->Status() : found;
}

CUresult FindStream(CUstream operand, std::shared_ptr<Stream>* stream) {
  uint64_t value = Raw(operand);
  if (value == 0) value = PerThreadDefault() ? Raw(CU_STREAM_PER_THREAD) : Raw(CU_STREAM_LEGACY);
  if (value > Raw(CU_STREAM_PER_THREAD)) {
    *stream = TheDevice().streams.Find(value);
    return *stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : (*stream)->context()->Status();
  }
  std::shared_ptr<Context> context;
  const CUresult found = CurrentContext(&context);
  if (found != CUDA_SUCCESS) return found;
  if (value == Raw(CU_STREAM_LEGACY)) {
    *stream = context->legacy();
    return CUDA_SUCCESS;
  }
  bool first = true;
  for (const auto& weak : Local().streamed) first = first && weak.lock() != context;
  if (first) Local().streamed.push_back(context);
  *stream = context->PerThread();
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  auto context = TheDevice().contexts.Find(Raw(ctx));
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Local().stack.push_back(std::move(context));
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext* pctx) {
  auto& stack = Local().stack;
  if (stack.empty() || stack.back() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (pctx != nullptr) *pctx = As<CUcontext>(stack.back()->handle);
  stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx) {
  auto& stack = Local().stack;
  if (ctx == nullptr) {
    if (!stack.empty()) stack.pop_back();
    return CUDA_SUCCESS;
  }
  auto context = TheDevice().contexts.Find(Raw(ctx));
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (stack.empty()) stack.emplace_back();
  stack.back() = std::move(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* pctx) {
  auto& stack = Local().stack;
  *pctx = stack.empty() || stack.back() == nullptr ? nullptr : As<CUcontext>(stack.back()->handle);
  return CUDA_SUCCESS;
}

}  // namespace rgpu::emu
