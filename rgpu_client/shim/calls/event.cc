// Events.
#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/recording.h"
#include "rgpu_client/shim/graphs/graphs.h"

namespace rgpu::shim {
namespace {

CUresult EventHere(CUevent handle, Here* here, Event** event) {
  *here = AnyHere(HandleValue(handle));
  *event = here->session->handles().Find<Event>(HandleValue(handle));
  if (*event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  here->context = here->session->handles().Find<Context>((*event)->context);
  return here->context != nullptr && here->context->alive ? CUDA_SUCCESS
                                                          : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

bool IsComplete(const Here& here, const Event& event) {
  if (event.shared) return false;  // other processes record it too
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

// The stream of the last record, as far as it is still there.
Stream* StreamOf(const Here& here, const Record& record) {
  return record.stream == 0
             ? nullptr
             : here.session->FindStream(here.context_id(), record.thread, record.stream);
}

// True if a wait for the record's stream, or for a later record in it, has ended.
bool CoveredByWait(const Here& here, const Record& record) {
  const Stream* const stream = StreamOf(here, record);
  return stream != nullptr && stream->synced_seq.load() >= record.seq;
}

// The record is complete, and so is the work before it in its stream. If another thread has
// recorded the event since, the answer was about that record. Returns the sticky error, if there is
// one.
CUresult NoteComplete(const Here& here, Event& event, const Record& record) {
  // It may be a record of another process that is complete.
  if (event.shared) return here.channel().sticky();
  MarkSynced(event.progress.completed, record.version);
  const std::lock_guard lock(event.record_mutex);
  if (event.progress.version.load() != record.version) return here.channel().sticky();
  Stream* const stream = StreamOf(here, record);
  if (stream == nullptr) return here.channel().sticky();
  MarkSynced(stream->synced_seq, record.seq);
  return here.channel().Complete(here.context_id(), stream, record.seq);
}

// A wait for the record, which the worker has answered, has covered the frees before it.
void CoverFrees(const Here& here, const Event& event, const Record& record) {
  if (event.shared) return;  // it may be a record of another process
  StreamFrees& frees = here.session->stream_frees();
  if (record.stream == 0) {  // of the whole context, or none
    frees.CoverContext(here.context_id(), record.seq);
  } else {
    frees.Cover(here.context_id(), record.stream, record.thread, record.seq);
  }
}

// True if the event is known to be complete, as by a notice that another thread has read.
bool KnownComplete(const Here& here, Event& event, CUresult* status) {
  if (!here.channel().expects_deliveries()) {
    *status = here.channel().sticky();
    return IsComplete(here, event);
  }
  const Record record(event);
  if (!IsComplete(here, event)) return false;
  *status = NoteComplete(here, event, record);
  return true;
}

}  // namespace

CUresult cuEventCreate(CUevent* phEvent, unsigned int Flags) {
  Here here;
  const bool shared = (Flags & CU_EVENT_INTERPROCESS) != 0;
  if (shared && (Flags & CU_EVENT_DISABLE_TIMING) == 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  // The older server's worker would refuse the event later.
  if (shared && here.channel().Lacks(Opcode::rgpuIpcSettle)) return CUDA_ERROR_NOT_SUPPORTED;
  auto made = std::make_unique<Event>();
  made->shared = shared;
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
  graph::EventGone(Graphs(), hEvent);
  here.session->handles().Remove(id);
  return here.channel().Post<op_rgpuEventDestroy>(here.issuer(), {id});
}

CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
  Here here;
  if (const CUresult status = StreamHere(hStream, &here); status != CUDA_SUCCESS) return status;
  Event* event = here.session->handles().Find<Event>(HandleValue(hEvent));
  if (event == nullptr || event->context != here.context_id()) return CUDA_ERROR_INVALID_HANDLE;
  CUresult over = CUDA_SUCCESS;
  if (graph::CaptureRecord(Graphs(), hEvent, SiteOf(here), flags, &over)) return over;
  const CUresult status = PostRecord<op_rgpuEventRecord>(
      here, *event, Work(here, Reach::kNamed), [&](uint64_t version) {
        return rgpuEventRecord_Request{event->id, here.stream->wire, version, flags};
      });
  return status == CUDA_SUCCESS && event->shared ? SettleShared(here) : status;
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
  if (const CUresult bad = graph::CheckEventUse(Graphs(), hEvent); bad != CUDA_SUCCESS) return bad;
  CUresult known = CUDA_SUCCESS;
  if (KnownComplete(here, *event, &known)) return known;
  Progress& progress = event->progress;
  const Record record(*event);
  if (!event->shared && CoveredByWait(here, record)) return NoteComplete(here, *event, record);
  const uint64_t completions = Channel::completions();
  if (progress.AnswerHolds(record.version, completions) && !event->shared) {
    here.channel().Poll();
    if (const CUresult status = here.channel().sticky(); status != CUDA_SUCCESS) return status;
    if (IsComplete(here, *event)) return NoteComplete(here, *event, record);
    if (Channel::completions() == completions) return CUDA_ERROR_NOT_READY;
  }
  rgpuEventQuery_Reply reply;
  const CUresult status = here.channel().Call<op_rgpuEventQuery>(
      here.issuer(), {event->id, record.version, event->shared ? uint8_t{0} : uint8_t{1}}, &reply);
  if (status == CUDA_ERROR_NOT_READY && !event->shared) {
    progress.NoteAnswer(record.version, completions);
  }
  if (status != CUDA_SUCCESS) return status;
  Channel::NoteCompletion();
  return NoteComplete(here, *event, record);
}

CUresult cuEventSynchronize(CUevent hEvent) {
  Here here;
  Event* event = nullptr;
  if (const CUresult status = EventHere(hEvent, &here, &event); status != CUDA_SUCCESS) {
    return status;
  }
  if (const CUresult bad = graph::CheckEventUse(Graphs(), hEvent); bad != CUDA_SUCCESS) return bad;
  CUresult known = CUDA_SUCCESS;
  if (!here.session->stream_frees().any() && ThreadIsClean(here) &&
      KnownComplete(here, *event, &known)) {
    return known;
  }
  const Record record(*event);
  rgpuEventSynchronize_Reply reply;
  const CUresult status =
      here.channel().Call<op_rgpuEventSynchronize>(here.issuer(), {event->id}, &reply);
  if (status != CUDA_SUCCESS) return status;
  CoverFrees(here, *event, record);
  return NoteComplete(here, *event, record);
}

CUresult cuEventElapsedTime_v2(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  Here here;
  Event* start = nullptr;
  Event* end = nullptr;
  CUresult status = EventHere(hStart, &here, &start);
  if (status == CUDA_SUCCESS) status = EventHere(hEnd, &here, &end);
  if (status != CUDA_SUCCESS) return status;
  for (const CUevent event : {hStart, hEnd}) {
    status = graph::CheckCaptured(Graphs(), event);
    if (status != CUDA_SUCCESS) return status;
  }
  // Also true for events of two devices, which have different contexts.
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
  if (status != CUDA_SUCCESS) return status;
  *pMilliseconds = reply.milliseconds;
  Channel::NoteCompletion();  // of both events
  return CUDA_SUCCESS;
}

}  // namespace rgpu::shim
