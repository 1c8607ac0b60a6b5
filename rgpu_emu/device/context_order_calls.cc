// Calls that order whole contexts: their events, and copies between them.
#include "rgpu_emu/device/copy.h"
#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/hostile.h"

namespace rgpu::emu {
namespace {

CUresult LivingContext(CUcontext handle, std::shared_ptr<Context>* context) {
  *context = TheDevice().contexts.Find(Raw(handle));
  if (*context == nullptr || (*context)->dying()) return CUDA_ERROR_INVALID_CONTEXT;
  return (*context)->Status();
}

CUresult CheckPeer(CUcontext handle) {
  std::shared_ptr<Context> current;
  if (const CUresult bad = CurrentContext(&current); bad != CUDA_SUCCESS) return bad;
  std::shared_ptr<Context> peer;
  const CUresult bad = LivingContext(handle, &peer);
  if (bad != CUDA_SUCCESS) return bad;
  return peer == current ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

}  // namespace

CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent) {
  std::shared_ptr<Context> context;
  if (const CUresult bad = LivingContext(hCtx, &context); bad != CUDA_SUCCESS) return bad;
  const auto event = TheDevice().events.Find(Raw(hEvent));
  if (event == nullptr || event->context() != context.get()) return CUDA_ERROR_INVALID_HANDLE;
  // The records of such an event lie in streams.
  if (event->shared != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  auto record = std::make_shared<EventRecord>();
  Fences pending = context->Pending();
  if (AllDone(pending) && !Hostile()) {
    record->Stamp();
    event->Replace(std::move(record));
    return CUDA_SUCCESS;
  }
  // A stream for this record only: it waits for all others, and none waits for it.
  const auto observer = context->NewStream(StreamKind::kNonBlocking, 0);
  Command command;
  command.after = std::move(pending);
  command.run = [record] {
    record->Stamp();
    return CUDA_SUCCESS;
  };
  Fence place;
  const CUresult pushed = observer->Push(std::move(command), &place);
  observer->Close();
  if (pushed != CUDA_SUCCESS) return pushed;
  record->places.push_back(std::move(place));
  event->Replace(std::move(record));
  return CUDA_SUCCESS;
}

CUresult cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent) {
  std::shared_ptr<Context> context;
  if (const CUresult bad = LivingContext(hCtx, &context); bad != CUDA_SUCCESS) return bad;
  const auto event = TheDevice().events.Find(Raw(hEvent));
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->shared != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const auto record = event->Current();
  if (record != nullptr) context->HoldBehind(record->places);
  return CUDA_SUCCESS;
}

// There is one device, which is not its own peer.
CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int) {
  const CUresult bad = CheckPeer(peerContext);
  return bad == CUDA_SUCCESS ? CUDA_ERROR_PEER_ACCESS_UNSUPPORTED : bad;
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext) {
  const CUresult bad = CheckPeer(peerContext);
  return bad == CUDA_SUCCESS ? CUDA_ERROR_PEER_ACCESS_NOT_ENABLED : bad;
}

// Comes behind all work of the three contexts, whose later work comes behind the copy.
CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                      CUcontext srcContext, size_t ByteCount) {
  std::shared_ptr<Stream> stream;
  std::shared_ptr<Context> to;
  std::shared_ptr<Context> from;
  CopyPlan plan = Linear(dstDevice, srcDevice, ByteCount);
  CUresult result = FindStream(nullptr, &stream);
  if (result == CUDA_SUCCESS) result = LivingContext(dstContext, &to);
  if (result == CUDA_SUCCESS) result = LivingContext(srcContext, &from);
  if (result == CUDA_SUCCESS) {
    result = CheckPlan(&plan, PointerKind::kDevice, PointerKind::kDevice);
  }
  if (result != CUDA_SUCCESS || ByteCount == 0) return result;
  const auto own = stream->context();
  for (const auto& context : {own, to, from}) own->HoldBehind(context->Pending());
  result = AsynchronousCopy(plan, stream);
  if (result != CUDA_SUCCESS) return result;
  for (const auto& context : {own, to, from}) context->HoldBehind({stream->Tail()});
  return CUDA_SUCCESS;
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                           CUcontext srcContext, size_t ByteCount, CUstream hStream) {
  std::shared_ptr<Stream> stream;
  std::shared_ptr<Context> side;
  CopyPlan plan = Linear(dstDevice, srcDevice, ByteCount);
  CUresult result = FindStream(hStream, &stream);
  if (result == CUDA_SUCCESS) result = LivingContext(dstContext, &side);
  if (result == CUDA_SUCCESS) result = LivingContext(srcContext, &side);
  if (result == CUDA_SUCCESS) {
    result = CheckPlan(&plan, PointerKind::kDevice, PointerKind::kDevice);
  }
  return result == CUDA_SUCCESS ? AsynchronousCopy(plan, stream) : result;
}

}  // namespace rgpu::emu
