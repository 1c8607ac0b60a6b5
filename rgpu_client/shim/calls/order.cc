#include "rgpu_client/shim/calls/order.h"

#include "rgpu_client/shim/calls/contexts.h"
#include "rgpu_client/shim/calls/recording.h"
#include "rgpu_client/shim/calls/side_streams.h"
#include "rgpu_client/shim/graphs/graphs.h"
#include "rgpu_client/shim/pump.h"
#include "rgpu_common/native/base/error_log.h"

namespace rgpu::shim {
namespace {

CUresult Post(const Here& here, const PointRef& point, bool waits) {
  HostCall call;
  call.point = point;
  call.waits = waits;
  PostOptions options = CountedWork(here, 0, Reach::kNamed);
  uint64_t seq = 0;
  options.seq = &seq;
  const CUresult status = here.channel().PostHostCall<op_rgpuHostFunction>(
      here.issuer(), {here.stream->wire}, options, call);
  if (status != CUDA_SUCCESS) return status;
  // What the stream waits for may write pinned memory that a later copy reads.
  if (waits) StartHostOrder(here, seq);
  Pump::Need(&here.channel());
  return CUDA_SUCCESS;
}

// The surroundings of an event.
CUresult EventThere(CUevent handle, Here* there, Event** event) {
  *there = AnyHere(HandleValue(handle));
  *event = there->session->handles().Find<Event>(HandleValue(handle));
  if (*event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  there->context = there->session->handles().Find<Context>((*event)->context);
  return there->context != nullptr && there->context->alive ? CUDA_SUCCESS
                                                            : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

// A graph has the nodes of one device.
CUresult CheckNoCapture(const Here& here, CUevent event) {
  CUresult over = CUDA_SUCCESS;
  const bool captures = graph::Captured(Graphs(), SiteOf(here), &over);
  if (over != CUDA_SUCCESS) return over;
  if (!captures && graph::CheckCaptured(Graphs(), event) == CUDA_SUCCESS) return CUDA_SUCCESS;
  base::LogSentence("a capture cannot have streams of several devices");
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

CUresult PostPoint(const Here& here, const PointRef& point) {
  const CUresult status = Post(here, point, false);
  if (status != CUDA_SUCCESS) point->Reach();
  return status;
}

CUresult PostWait(const Here& here, const PointRef& point) { return Post(here, point, true); }

CUresult Follow(const Here& first, const Here& second) {
  const auto point = std::make_shared<OrderPoint>();
  const CUresult status = PostPoint(first, point);
  return status == CUDA_SUCCESS ? PostWait(second, point) : status;
}

CUresult WaitForEventOfAnother(const Here& here, CUevent handle, unsigned flags) {
  Here there;
  Event* event = nullptr;
  CUresult status = EventThere(handle, &there, &event);
  if (status == CUDA_SUCCESS) status = CheckNoCapture(here, handle);
  if (status != CUDA_SUCCESS) return status;
  if (flags != CU_EVENT_WAIT_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
  if (event->progress.version.load() == 0 && !event->shared) return here.channel().sticky();
  const auto point = std::make_shared<OrderPoint>();
  status = SideStreamHere(*there.session, *there.context, point, &there);
  if (status == CUDA_SUCCESS) {
    status = there.channel().Post<op_rgpuStreamWaitEvent>(
        there.issuer(), {there.stream->wire, event->id, flags}, Work(there, Reach::kNamed));
  }
  if (status == CUDA_SUCCESS) status = PostPoint(there, point);
  if (status != CUDA_SUCCESS) {
    point->Reach();
    return status;
  }
  status = PostWait(here, point);
  return status == CUDA_SUCCESS && event->shared ? SettleShared(there) : status;
}

}  // namespace rgpu::shim
