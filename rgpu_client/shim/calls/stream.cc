// Streams.
#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/contexts.h"
#include "rgpu_client/shim/calls/order.h"
#include "rgpu_client/shim/calls/recording.h"
#include "rgpu_client/shim/graphs/graphs.h"

#include <algorithm>

namespace rgpu::shim {
namespace {

// True if this process knows that all work of the stream is complete.
bool IsSynced(const Here& here) {
  const Stream& stream = *here.stream;
  // The legacy stream waits for the other streams of the context as well.
  const uint64_t work = stream.wire == kWireLegacyStream ? here.context->work_seq.load()
                                                         : stream.progress.version.load();
  return work <= std::max(stream.synced_seq.load(), here.context->synced_seq.load());
}

}  // namespace

CUresult SynchronizeStream(const Here& here) {
  const uint64_t upto = here.channel().last_posted();
  rgpuStreamSynchronize_Reply reply;
  const CUresult status =
      here.channel().Call<op_rgpuStreamSynchronize>(here.issuer(), {here.stream->wire}, &reply);
  if (status != CUDA_SUCCESS) return status;
  MarkSynced(here.stream->synced_seq, upto);
  here.session->stream_frees().Cover(here.context_id(), here.stream->wire, here.stream->thread,
                                     upto);
  return here.channel().Complete(here.context_id(), here.stream, upto);
}

CUresult cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  const Device& device = *here.session->devices().Find(here.context->device);
  auto made = std::make_unique<Stream>();
  made->context = here.context_id();
  made->flags = flags;
  // In CUDA, a lower number is a greater priority.
  made->priority = std::clamp(priority, device.info.greatest_priority, device.info.least_priority);
  const int clamped = made->priority;
  Stream* stream = made.get();
  const uint64_t id = here.session->handles().Add(std::move(made));
  if (id == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  stream->wire = id;
  const CUresult status =
      here.channel().Post<op_rgpuStreamCreate>(here.issuer(), {id, flags, clamped});
  if (status != CUDA_SUCCESS) return status;
  *phStream = MakeHandle<CUstream>(id);
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream* phStream, unsigned int Flags) {
  return shim::cuStreamCreateWithPriority(phStream, Flags, 0);
}

CUresult cuStreamDestroy_v2(CUstream hStream) {
  Here here;
  if (HandleValue(hStream) <= kWirePerThreadStream) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult status = StreamHere(hStream, &here); status != CUDA_SUCCESS) return status;
  const uint64_t id = here.stream->id;
  graph::StreamGone(Graphs(), SiteOf(here));
  here.channel().StreamGoes(here.stream->wire, here.stream->thread);
  here.session->stream_frees().StreamGoes(here.stream->wire, here.stream->thread);
  here.session->handles().Remove(id);
  return here.channel().Post<op_rgpuStreamDestroy>(here.issuer(), {id});
}

CUresult cuStreamSynchronize(CUstream hStream) {
  Here here;
  if (const CUresult status = StreamHere(hStream, &here); status != CUDA_SUCCESS) return status;
  if (const CUresult bad = CheckStreamWait(here); bad != CUDA_SUCCESS) return bad;
  const bool known = IsSynced(here) && !here.session->stream_frees().any();
  return known && ThreadIsClean(here) ? here.channel().sticky() : SynchronizeStream(here);
}

CUresult cuStreamQuery(CUstream hStream) {
  Here here;
  if (const CUresult status = StreamHere(hStream, &here); status != CUDA_SUCCESS) return status;
  if (const CUresult bad = CheckStreamWait(here); bad != CUDA_SUCCESS) return bad;
  Progress& progress = here.stream->progress;
  const bool legacy = here.stream->wire == kWireLegacyStream;
  const uint64_t version = legacy ? here.context->work_seq.load() : progress.version.load();
  const auto complete = [&] { return progress.completed.load() >= version || IsSynced(here); };
  const auto told = [&] {
    return here.channel().Complete(here.context_id(), here.stream, version);
  };
  if (complete()) return told();
  const uint64_t completions = Channel::completions();
  if (progress.AnswerHolds(version, completions)) {
    here.channel().Poll();
    if (const CUresult status = here.channel().sticky(); status != CUDA_SUCCESS) return status;
    if (complete()) return told();
    if (Channel::completions() == completions) return CUDA_ERROR_NOT_READY;
  }
  rgpuStreamQuery_Reply reply;
  const CUresult status = here.channel().Call<op_rgpuStreamQuery>(
      here.issuer(), {here.stream->wire, version, 1}, &reply);
  if (status == CUDA_ERROR_NOT_READY) progress.NoteAnswer(version, completions);
  if (status != CUDA_SUCCESS) return status;
  Channel::NoteCompletion();
  MarkSynced(progress.completed, version);
  return told();
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  Here here;
  if (const CUresult status = StreamHere(hStream, &here); status != CUDA_SUCCESS) return status;
  const Event* event = here.session->handles().Find<Event>(HandleValue(hEvent));
  if (event == nullptr) return WaitForEventOfAnother(here, hEvent, Flags);
  const bool recorded = event->progress.version.load() != 0 || event->shared;
  CUresult over = CUDA_SUCCESS;
  if (graph::CaptureWait(Graphs(), SiteOf(here), hEvent, recorded, Flags, &over)) return over;
  if (!recorded) return here.channel().sticky();
  const CUresult status = here.channel().Post<op_rgpuStreamWaitEvent>(
      here.issuer(), {here.stream->wire, event->id, Flags}, Work(here, Reach::kNamed));
  return status == CUDA_SUCCESS && event->shared ? SettleShared(here) : status;
}

CUresult cuStreamGetPriority(CUstream hStream, int* priority) {
  Here here;
  if (const CUresult status = StreamHere(hStream, &here); status != CUDA_SUCCESS) return status;
  *priority = here.stream->priority;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream hStream, unsigned int* flags) {
  Here here;
  if (const CUresult status = StreamHere(hStream, &here); status != CUDA_SUCCESS) return status;
  *flags = here.stream->flags;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice(CUstream hStream, CUdevice* device) {
  Here here;
  if (const CUresult status = StreamHere(hStream, &here); status != CUDA_SUCCESS) return status;
  *device = here.context->device;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream hStream, unsigned long long* streamId) {
  Here here;
  if (const CUresult status = StreamHere(hStream, &here); status != CUDA_SUCCESS) return status;
  // The id is unique in the process: default streams get numbers that no handle has.
  const uint64_t wire = here.stream->wire;
  *streamId = wire > kWirePerThreadStream
                  ? wire
                  : (wire << 62) | (uint64_t{here.stream->thread} << 32) | here.context->id;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext* pctx) {
  Here here;
  if (const CUresult status = StreamHere(hStream, &here); status != CUDA_SUCCESS) return status;
  *pctx = MakeHandle<CUcontext>(here.context->id);
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx_v2(CUstream hStream, CUcontext* pCtx, CUgreenCtx* pGreenCtx) {
  *pGreenCtx = nullptr;
  return shim::cuStreamGetCtx(hStream, pCtx);
}

CUresult cuStreamGetGreenCtx(CUstream hStream, CUgreenCtx* phCtx) {
  Here here;
  if (const CUresult status = StreamHere(hStream, &here); status != CUDA_SUCCESS) return status;
  *phCtx = nullptr;
  return CUDA_SUCCESS;
}

namespace {

int SyncDomains(const Here& here) {
  const Device& device = *here.session->devices().Find(here.context->device);
  return device.Attribute(CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT);
}

}  // namespace

CUresult cuStreamGetAttribute(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue* value_out) {
  Here here;
  if (const CUresult status = StreamHere(hStream, &here); status != CUDA_SUCCESS) return status;
  return here.stream->attributes.Get(attr, here.stream->priority, SyncDomains(here), value_out);
}

CUresult cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr,
                              const CUstreamAttrValue* value) {
  Here here;
  if (const CUresult status = StreamHere(hStream, &here); status != CUDA_SUCCESS) return status;
  return here.stream->attributes.Set(attr, SyncDomains(here), *value);
}

CUresult cuStreamCopyAttributes(CUstream dst, CUstream src) {
  Here to;
  Here from;
  if (const CUresult status = StreamHere(dst, &to); status != CUDA_SUCCESS) return status;
  if (const CUresult status = StreamHere(src, &from); status != CUDA_SUCCESS) return status;
  to.stream->attributes.CopyFrom(from.stream->attributes);
  return CUDA_SUCCESS;
}

}  // namespace rgpu::shim
