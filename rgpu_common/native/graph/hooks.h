// What the calls of streams, events and memory ask while a stream may be capturing. Each function
// first reads one atomic flag, and costs nothing more if no capture goes on.
#pragma once

#include "rgpu_common/native/graph/model.h"

namespace rgpu::graph {

// A call that issues work on `stream`. Returns true if the call is over: `*result` is what it
// returns, and the work is a node if `*result` is CUDA_SUCCESS. `make` returns the parameters of
// the node: `CUresult make(Params*)`. It runs without the lock.
template <class Make>
bool Capture(Model& model, const StreamSite& stream, CUresult* result, const Make& make);

bool Captured(Model& model, const StreamSite& stream, CUresult* result);
CUresult AddCaptured(Model& model, const StreamSite& stream, Params params);

// cuEventRecordWithFlags and cuStreamWaitEvent; `flags` as the call got them. True: the call is
// over with `*result`.
bool CaptureRecord(Model& model, CUevent event, const StreamSite& stream, unsigned flags,
                   CUresult* result);
bool CaptureWait(Model& model, const StreamSite& stream, CUevent event, bool recorded,
                 unsigned flags, CUresult* result);

// Calls that are potentially unsafe during a capture (cuMemAlloc and its like): 900 or success.
CUresult CheckUnsafe(Model& model);
// 907 if the event was last recorded in a capture.
CUresult CheckCaptured(Model& model, CUevent event);
// A query or wait: of a stream (900, 906), of a context (900), of an event (907).
CUresult CheckStreamWait(Model& model, const StreamSite& stream);
CUresult CheckContextWait(Model& model, CUcontext context);
CUresult CheckEventUse(Model& model, CUevent event);
void EventGone(Model& model, CUevent event);
void StreamGone(Model& model, const StreamSite& stream);
void ContextGone(Model& model, CUcontext context);

// True if an alloc node that exists has this address. Only such memory can be freed by a node.
bool IsGraphMemory(Model& model, CUdeviceptr address);
// cuMemFree and cuMemFreeAsync of an address: true if it is memory of an alloc node. `*result` is
// what the call returns. Success: the memory is no longer in use; it goes when its graphs are gone.
bool FreeGraphMemory(Model& model, CUdeviceptr address, CUresult* result);

// Number of this thread, and its capture mode (cuThreadExchangeStreamCaptureMode).
ThreadId ThisThread();
CUstreamCaptureMode& ThisThreadMode();

template <class Make>
bool Capture(Model& model, const StreamSite& stream, CUresult* result, const Make& make) {
  if (!model.captures.active() || !Captured(model, stream, result)) return false;
  Params params;
  if (*result == CUDA_SUCCESS) *result = make(&params);
  if (*result == CUDA_SUCCESS) *result = AddCaptured(model, stream, std::move(params));
  return true;
}

}  // namespace rgpu::graph
