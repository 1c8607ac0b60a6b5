// Events.
#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/recording.h"

namespace rgpu::shim {
namespace {

CUresult EventHere(CUevent handle, Here* here, Event** event) {
  *here = AnyHere();
  *event = here->session->handles().Find<Event>(HandleValue(handle));
  if (*event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  here->context = here->session->handles().Find<Context>((*event)->context);
  return here->context != nullptr && here->context->alive ? CUDA_SUCCESS
                                                          : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

bool IsComplete(const Here& here, const Event& event) {
  return event.progress.completed.load() >= event.progress.version.load() ||
         event.record_seq.load() <= here.context->synced_seq.load();
}

// The last record of an event, as a call found it.
struct Record {
  explicit Record(Event& event) {
    const std::lock_guard lock(event.record_mutex);
    version = event.progress.version.load();
    seq = event.record_seq.load();
    stream = event.record_stream.load();
    thread = event.record_thread.load();
  }
  uint64_t version;
  uint64_t seq;
  uint64_t stream;
  uint32_t thread;
};

// The record is complete, and so is the work before it in its stream.
void NoteComplete(const Here& here, Event& event, const Record& record) {
  MarkSynced(event.progress.completed, record.version);
  Stream* const stream =
      here.session->FindStream(here.context_id(), record.thread, record.stream);
  if (record.stream != 0 && stream != nullptr) MarkSynced(stream->synced_seq, record.seq);
}

}  // namespace

CUresult cuEventCreate(CUevent* phEvent, unsigned int Flags) {
  Here here;
  if ((Flags & CU_EVENT_INTERPROCESS) != 0) {
    return (Flags & CU_EVENT_DISABLE_TIMING) == 0 ? CUDA_ERROR_INVALID_VALUE
                                                  : CUDA_ERROR_NOT_SUPPORTED;
  }
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  auto made = std::make_unique<Event>();
  made->context = here.context_id();
  made->flags = Flags;
  const uint64_t id = here.session->handles().Add(std::move(made));
  if (id == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult status = here.channel().Post<op_rgpuEventCreate>(here.issuer(), {id, Flags});
  if (status == CUDA_SUCCESS) *phEvent = MakeHandle<CUevent>(id);
  return status;
}

CUresult cuEventDestroy_v2(CUevent hEvent) {
  Here here;
  Event* event = nullptr;
  if (const CUresult status = EventHere(hEvent, &here, &event); status != CUDA_SUCCESS) {
    return status;
  }
  const uint64_t id = event->id;
  here.session->handles().Remove(id);
  return here.channel().Post<op_rgpuEventDestroy>(here.issuer(), {id});
}

CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
  Here here;
  if (const CUresult status = StreamHere(hStream, &here); status != CUDA_SUCCESS) return status;
  Event* event = here.session->handles().Find<Event>(HandleValue(hEvent));
  if (event == nullptr || event->context != here.context_id()) return CUDA_ERROR_INVALID_HANDLE;
  return PostRecord<op_rgpuEventRecord>(here, *event, Work(here, Reach::kNamed), [&](uint64_t version) {
    return rgpuEventRecord_Request{event->id, here.stream->wire, version, flags};
  });
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream) {
  return shim::cuEventRecordWithFlags(hEvent, hStream, CU_EVENT_RECORD_DEFAULT);
}

CUresult cuEventQuery(CUevent hEvent) {
  Here here;
  Event* event = nullptr;
  if (const CUresult status = EventHere(hEvent, &here, &event); status != CUDA_SUCCESS) {
    return status;
  }
  if (IsComplete(here, *event)) return here.channel().sticky();
  Progress& progress = event->progress;
  const Record record(*event);
  if (progress.asked.load() == record.version) {
    here.channel().Poll();
    if (const CUresult status = here.channel().sticky(); status != CUDA_SUCCESS) return status;
    if (!IsComplete(here, *event)) return CUDA_ERROR_NOT_READY;
    NoteComplete(here, *event, record);
    return CUDA_SUCCESS;
  }
  rgpuEventQuery_Reply reply;
  const CUresult status =
      here.channel().Call<op_rgpuEventQuery>(here.issuer(), {event->id, record.version, 1}, &reply);
  if (status == CUDA_SUCCESS) NoteComplete(here, *event, record);
  if (status == CUDA_ERROR_NOT_READY) progress.asked.store(record.version);
  return status;
}

CUresult cuEventSynchronize(CUevent hEvent) {
  Here here;
  Event* event = nullptr;
  if (const CUresult status = EventHere(hEvent, &here, &event); status != CUDA_SUCCESS) {
    return status;
  }
  if (IsComplete(here, *event) && ThreadIsClean(here)) return here.channel().sticky();
  const Record record(*event);
  rgpuEventSynchronize_Reply reply;
  const CUresult status =
      here.channel().Call<op_rgpuEventSynchronize>(here.issuer(), {event->id}, &reply);
  if (status == CUDA_SUCCESS) NoteComplete(here, *event, record);
  return status;
}

CUresult cuEventElapsedTime_v2(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  Here here;
  Event* start = nullptr;
  Event* end = nullptr;
  CUresult status = EventHere(hStart, &here, &start);
  if (status == CUDA_SUCCESS) status = EventHere(hEnd, &here, &end);
  if (status != CUDA_SUCCESS) return status;
  if (start->context != end->context) return CUDA_ERROR_INVALID_HANDLE;
  for (const Event* event : {start, end}) {
    const bool timed = (event->flags & CU_EVENT_DISABLE_TIMING) == 0;
    if (!timed || event->progress.version.load() == 0) return CUDA_ERROR_INVALID_HANDLE;
  }
  const auto known = [](const Event& event) {
    return event.progress.time_version.load() == event.progress.version.load();
  };
  if (known(*start) && known(*end)) {
    const auto from = static_cast<double>(start->progress.time_ns.load());
    *pMilliseconds = static_cast<float>((static_cast<double>(end->progress.time_ns) - from) / 1e6);
    return here.channel().sticky();
  }
  rgpuEventElapsedTime_Reply reply;
  status =
      here.channel().Call<op_rgpuEventElapsedTime>(here.issuer(), {start->id, end->id}, &reply);
  if (status == CUDA_SUCCESS) *pMilliseconds = reply.milliseconds;
  return status;
}

}  // namespace rgpu::shim
