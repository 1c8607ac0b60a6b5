#include "rgpu_emu/device/event.h"

#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/graph_capture.h"

namespace rgpu::emu {
namespace {

CUresult FindEvent(CUevent handle, std::shared_ptr<Event>* event) {
  *event = TheDevice().events.Find(Raw(handle));
  return *event == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

// A record of an event that other processes see. It is complete also if the context fails before
// the stream comes to it.
CUresult RecordShared(const std::shared_ptr<SharedEvent>& shared, Stream& stream) {
  SharedEvent::Record record;
  if (const CUresult bad = shared->Begin(&record); bad != CUDA_SUCCESS) return bad;
  if (stream.NothingBefore()) {
    shared->Complete(record);
    return stream.context()->Status();
  }
  Command command;
  command.always = true;
  command.run = [shared, record] {
    shared->Complete(record);
    return CUDA_SUCCESS;
  };
  const CUresult pushed = stream.Push(std::move(command));
  if (pushed != CUDA_SUCCESS) shared->Complete(record);
  return pushed;
}

}  // namespace

CUresult cuEventCreate(CUevent* phEvent, unsigned int Flags) {
  const bool shared = (Flags & CU_EVENT_INTERPROCESS) != 0;
  if (shared && (Flags & CU_EVENT_DISABLE_TIMING) == 0) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Context> context;
  const CUresult found = CurrentContext(&context);
  if (found != CUDA_SUCCESS) return found;
  std::shared_ptr<SharedEvent> page;
  if (shared) page = SharedEvent::Make();
  if (shared && page == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t handle = NewHandle(HandleKind::kEvent);
  TheDevice().events.Add(handle, std::make_shared<Event>(context, Flags, std::move(page)));
  *phEvent = As<CUevent>(handle);
  return CUDA_SUCCESS;
}

// A wait that was issued earlier keeps the record alive, not the event.
CUresult cuEventDestroy_v2(CUevent hEvent) {
  const auto event = TheDevice().events.Remove(Raw(hEvent));
  if (event != nullptr) graph::EventGone(Graphs(), hEvent);
  return event == nullptr ? CUDA_ERROR_INVALID_HANDLE : event->owner()->Status();
}

CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
  std::shared_ptr<Stream> stream;  // it needs a context, which NVIDIA's driver looks for first
  if (const CUresult bad = FindStream(hStream, &stream); bad != CUDA_SUCCESS) return bad;
  std::shared_ptr<Event> event;
  if (const CUresult bad = FindEvent(hEvent, &event); bad != CUDA_SUCCESS) return bad;
  if (stream->context().get() != event->context()) return CUDA_ERROR_INVALID_HANDLE;
  CUresult captured = CUDA_SUCCESS;
  if (graph::CaptureRecord(Graphs(), hEvent, SiteOf(*stream), flags, &captured)) return captured;
  if (event->shared != nullptr) return RecordShared(event->shared, *stream);
  auto record = std::make_shared<EventRecord>();
  if (stream->NothingBefore() && stream->context()->Status() == CUDA_SUCCESS) {
    // The event is complete at once: there is nothing to wait for and no thread to wake.
    record->Stamp();
    event->Replace(std::move(record));
    return CUDA_SUCCESS;
  }
  Command command;
  command.run = [record] {
    record->Stamp();
    return CUDA_SUCCESS;
  };
  Fence place;
  const CUresult pushed = stream->Push(std::move(command), &place);
  if (pushed != CUDA_SUCCESS) return pushed;
  record->places.push_back(std::move(place));
  event->Replace(std::move(record));
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream) {
  return emu::cuEventRecordWithFlags(hEvent, hStream, 0);
}

CUresult cuEventQuery(CUevent hEvent) {
  std::shared_ptr<Event> event;
  if (const CUresult bad = FindEvent(hEvent, &event); bad != CUDA_SUCCESS) return bad;
  if (const CUresult status = event->owner()->Status(); status != CUDA_SUCCESS) return status;
  if (const CUresult bad = graph::CheckEventUse(Graphs(), hEvent); bad != CUDA_SUCCESS) return bad;
  if (event->shared != nullptr) {
    const bool done = event->shared->IsComplete(event->shared->Latest());
    return done ? event->owner()->Status() : CUDA_ERROR_NOT_READY;
  }
  const auto record = event->Current();
  return record == nullptr || AllDone(record->places) ? event->owner()->Status()
                                                      : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent hEvent) {
  std::shared_ptr<Event> event;
  if (const CUresult bad = FindEvent(hEvent, &event); bad != CUDA_SUCCESS) return bad;
  if (const CUresult bad = graph::CheckEventUse(Graphs(), hEvent); bad != CUDA_SUCCESS) return bad;
  if (event->shared != nullptr) {
    event->shared->Wait(event->shared->Latest(), *event->owner());
    return WaitIn(*event->owner(), {});
  }
  const auto record = event->Current();
  const CUresult result =
      record == nullptr ? event->owner()->Status() : WaitIn(*event->owner(), record->places);
  TrimPoolsAfterSync();
  return result;
}

CUresult cuEventElapsedTime_v2(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  std::shared_ptr<Event> start;
  std::shared_ptr<Event> end;
  if (const CUresult bad = FindEvent(hStart, &start); bad != CUDA_SUCCESS) return bad;
  if (const CUresult bad = FindEvent(hEnd, &end); bad != CUDA_SUCCESS) return bad;
  if (((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0)
    return CUDA_ERROR_INVALID_HANDLE;
  for (const CUevent event : {hStart, hEnd}) {
    const CUresult bad = graph::CheckCaptured(Graphs(), event);
    if (bad != CUDA_SUCCESS) return bad;
  }
  const auto first = start->Current();
  const auto second = end->Current();
  if (first == nullptr || second == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!AllDone(first->places) || !AllDone(second->places)) return CUDA_ERROR_NOT_READY;
  if (const CUresult status = start->owner()->Status(); status != CUDA_SUCCESS) return status;
  *pMilliseconds = static_cast<float>(second->time_ns.load() - first->time_ns.load()) * 1e-6F;
  return CUDA_SUCCESS;
}

}  // namespace rgpu::emu
