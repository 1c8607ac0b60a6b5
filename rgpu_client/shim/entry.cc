#include "rgpu_client/shim/entry.h"

#include <pthread.h>

#include "gen/errors.gen.h"
#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/host_functions.h"
#include "rgpu_client/shim/runtime.h"
#include "rgpu_client/shim/trace.h"
#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/base/error_log.h"

namespace rgpu::shim {

EntryGuard::EntryGuard(uint32_t index, uint32_t flags) : index_(index), flags_(flags) {
  CheckForFork();
  const Phase phase = CurrentPhase();
  if (phase == Phase::kExiting) {
    status_ = CUDA_ERROR_DEINITIALIZED;
  } else if (phase == Phase::kNew && (flags & kNeedsInit) != 0) {
    status_ = CUDA_ERROR_NOT_INITIALIZED;
  }
  // A thread that is cancelled inside must not leave a lock held, or the reader's role taken.
  if ((flags & kMayWait) != 0) {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_);
    // Cancellation is disabled in the thread of host functions, so other threads skip the question.
    if (cancel_state_ == PTHREAD_CANCEL_DISABLE && status_ == CUDA_SUCCESS &&
        HostFunctions::InOne()) {
      status_ = CUDA_ERROR_NOT_PERMITTED;
    }
  }
  if (PagedHas(kMirrors)) [[unlikely]]
    ShowMemory();
  if ((flags & kPerThreadStream) != 0) ThisThread().per_thread_stream = true;
  if (TraceOn()) {
    ThisThread().call_index = index;
    start_ns_ = base::NowNs();
  }
}

EntryGuard::~EntryGuard() {
  if ((flags_ & kPerThreadStream) != 0) ThisThread().per_thread_stream = false;
  if (start_ns_ != 0) TraceCall(index_, base::NowNs() - start_ns_);
  if ((flags_ & kMayWait) != 0) pthread_setcancelstate(cancel_state_, nullptr);
}

CUresult EntryGuard::LeaveInContext(CUresult error) {
  const auto& contexts = ThisThread().stack;
  const bool none = contexts.empty() || contexts.back() == nullptr;
  return Leave(none ? CUDA_ERROR_INVALID_CONTEXT : error);
}

// For the log of cuLogs*, and for the sentence at the end of a program that fails.
void EntryGuard::NoteFailure(CUresult result) const {
  base::LogFailure(kCallNames[index_], result, ErrorName(result));
  if (result == CUDA_ERROR_NOT_SUPPORTED) NoteUnsupported(index_);
}

namespace {

// True for functions that return success when work of the device is complete, so that the program
// may then read what that work has written.
bool TellsCompletion(uint32_t index) {
  switch (static_cast<CallId>(index)) {
    case CallId::cuCtxSynchronize:
    case CallId::cuCtxSynchronize_v2:
    case CallId::cuStreamSynchronize:
    case CallId::cuStreamSynchronize_ptsz:
    case CallId::cuStreamQuery:
    case CallId::cuStreamQuery_ptsz:
    case CallId::cuEventSynchronize:
    case CallId::cuEventQuery:
    case CallId::cuMemcpy:
    case CallId::cuMemcpy_ptds:
    case CallId::cuMemcpyDtoH_v2:
    case CallId::cuMemcpyDtoH_v2_ptds:
    case CallId::cuMemcpy2D_v2:
    case CallId::cuMemcpy2D_v2_ptds:
      return true;
    default:
      return false;
  }
}

}  // namespace

// Keeps memory that host and device use equal on both sides (ADR 0019).
void EntryGuard::SettleMemory(CUresult result) const {
  if ((flags_ & kMayWait) == 0 || CurrentPhase() != Phase::kReady) return;
  for (Session* const session : LiveSessions()) {
    session->paged().AfterCall(result == CUDA_SUCCESS && TellsCompletion(index_));
  }
}

// A stream may wait for a value that the program has written since its last call.
void EntryGuard::ShowMemory() const {
  if ((flags_ & kMayWait) == 0 || status_ != CUDA_SUCCESS || CurrentPhase() != Phase::kReady)
    return;
  for (Session* const session : LiveSessions()) session->paged().BeforeCall();
}

bool IsDevice(CUdevice ordinal) { return CurrentSession()->devices().Find(ordinal) != nullptr; }

CUresult Unsupported(uint32_t index, CUresult answer) {
  if (TraceOn()) TraceCall(index, 0);
  if (index < kCallCount) base::LogRefusal(kCallNames[index], "rgpu", CallReason(index));
  NoteUnsupported(index);
  return answer;
}

}  // namespace rgpu::shim
