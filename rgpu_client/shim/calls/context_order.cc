// Events of whole contexts, peer access, and copies between contexts.
#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/across.h"
#include "rgpu_client/shim/calls/contexts.h"
#include "rgpu_client/shim/calls/copies.h"
#include "rgpu_client/shim/calls/recording.h"
#include "rgpu_client/shim/graphs/graphs.h"
#include "rgpu_client/shim/trace.h"

namespace rgpu::shim {
namespace {

Context* FindContext(CUcontext handle) {
  Context* context = SessionOfContext(HandleValue(handle))->FindContext(handle);
  return context != nullptr && context->alive ? context : nullptr;
}

// The context of another device, or another context of the same one. Neither can be reached: a
// session's devices have no peers.
CUresult CheckPeer(CUcontext handle) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  const Context* peer = FindContext(handle);
  return peer == nullptr || peer == here.context ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

struct PeerCopy {
  CUdeviceptr to;
  CUcontext to_context;
  CUdeviceptr from;
  CUcontext from_context;
  size_t bytes;
};

CUresult CopyPeer(const PeerCopy& copy, CUstream stream, bool serial) {
  Here here;
  if (const CUresult status = StreamHere(stream, &here); status != CUDA_SUCCESS) return status;
  const Context* to = FindContext(copy.to_context);
  const Context* from = FindContext(copy.from_context);
  if (to == nullptr || from == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (const CUresult status = here.channel().sticky(); status != CUDA_SUCCESS) return status;
  if (copy.bytes == 0) return CUDA_SUCCESS;
  const Copy sides{
      {copy.to, copy.bytes, true}, {copy.from, copy.bytes, true}, copy.bytes, 1, serial};
  if (IsAcross(here, sides)) return RunAcross(here, sides);
  CUresult status = CheckSides(here, sides);
  if (status != CUDA_SUCCESS) return status;
  // A node of a graph names one context: all memory of a session is of one device.
  if (CapturedCopy(here, sides, &status)) return status;
  TraceBytes(copy.bytes);
  status = here.channel().Post<op_rgpuCopyPeer>(
      here.issuer(), {copy.to, to->id, copy.from, from->id, copy.bytes, here.stream->wire, serial},
      CountedWork(here, copy.bytes));
  if (status != CUDA_SUCCESS || !serial) return status;
  // The copy is work of these contexts too: a wait for one of them waits for it.
  for (const CUcontext handle : {copy.to_context, copy.from_context}) {
    if (Context* context = FindContext(handle)) {
      MarkSynced(context->work_seq, here.channel().last_posted());
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent) {
  Here here = InContextHere(hCtx);
  here.context = FindContext(hCtx);
  if (here.context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Event* event = here.session->handles().Find<Event>(HandleValue(hEvent));
  if (event == nullptr || event->context != here.context_id()) return CUDA_ERROR_INVALID_HANDLE;
  if (event->shared) return CUDA_ERROR_NOT_SUPPORTED;
  if (const CUresult bad = CheckContextWait(*here.context); bad != CUDA_SUCCESS) return bad;
  PostOptions options;
  options.work = here.context;
  return PostRecord<op_rgpuContextRecordEvent>(here, *event, options, [&](uint64_t version) {
    return rgpuContextRecordEvent_Request{here.context->id, event->id, version};
  });
}

CUresult cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent) {
  Here here = InContextHere(hCtx);
  here.context = FindContext(hCtx);
  if (here.context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const Event* event = here.session->handles().Find<Event>(HandleValue(hEvent));
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->shared) return CUDA_ERROR_NOT_SUPPORTED;
  CUresult bad = CheckContextWait(*here.context);
  if (bad == CUDA_SUCCESS) bad = graph::CheckEventUse(Graphs(), hEvent);
  if (bad != CUDA_SUCCESS) return bad;
  if (event->progress.version.load() == 0) return CUDA_SUCCESS;  // never recorded
  PostOptions options;
  options.work = here.context;
  return here.channel().Post<op_rgpuContextWaitEvent>(here.issuer(), {here.context->id, event->id},
                                                      options);
}

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int) {
  const CUresult status = CheckPeer(peerContext);
  return status == CUDA_SUCCESS ? CUDA_ERROR_PEER_ACCESS_UNSUPPORTED : status;
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext) {
  const CUresult status = CheckPeer(peerContext);
  return status == CUDA_SUCCESS ? CUDA_ERROR_PEER_ACCESS_NOT_ENABLED : status;
}

CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                      CUcontext srcContext, size_t ByteCount) {
  return CopyPeer({dstDevice, dstContext, srcDevice, srcContext, ByteCount}, nullptr, true);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                           CUcontext srcContext, size_t ByteCount, CUstream hStream) {
  return CopyPeer({dstDevice, dstContext, srcDevice, srcContext, ByteCount}, hStream, false);
}

}  // namespace rgpu::shim
