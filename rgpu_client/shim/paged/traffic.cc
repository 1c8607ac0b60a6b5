#include "rgpu_client/shim/paged/traffic.h"

#include <algorithm>
#include <memory>

#include "rgpu_client/shim/calls/here.h"
#include "rgpu_client/shim/region_sink.h"
#include "rgpu_client/shim/session.h"

namespace rgpu::shim::traffic {
namespace {

// The context's page stream, which is made on first use.
CUresult PageStream(Session& session, Context& context, Here* here) {
  *here = {&session, &ThisThread(), &context, nullptr};
  const std::lock_guard lock(context.page_stream_mutex);
  here->stream = session.handles().Find<Stream>(context.page_stream);
  if (here->stream != nullptr) return CUDA_SUCCESS;
  auto made = std::make_unique<Stream>();
  made->context = here->context_id();
  made->flags = CU_STREAM_NON_BLOCKING;
  Stream* stream = made.get();
  const uint64_t id = session.handles().Add(std::move(made));
  if (id == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  stream->wire = id;
  const CUresult status = session.channel().Post<op_rgpuPageStreamCreate>(here->issuer(), {id});
  if (status != CUDA_SUCCESS) return status;
  context.page_stream = id;
  here->stream = stream;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult Fetch(Session& session, Context& context, uint64_t address, uint64_t bytes, uint8_t* to) {
  Here here;
  if (const CUresult status = PageStream(session, context, &here); status != CUDA_SUCCESS) {
    return status;
  }
  RegionSink sink({to, bytes, 1, bytes});
  rgpuCopyDtoH_Reply reply;
  const CUresult status = session.channel().Call<op_rgpuCopyDtoH>(
      here.issuer(), {address, bytes, bytes, 1, here.stream->wire}, &reply, &sink);
  if (status != CUDA_SUCCESS) return status;
  if (sink.complete() && !sink.fault()) return CUDA_SUCCESS;
  session.channel().SetSticky(CUDA_ERROR_EXTERNAL_DEVICE,
                              "the server sent too few bytes of a page");
  return CUDA_ERROR_EXTERNAL_DEVICE;
}

CUresult Push(Session& session, Context& context, uint64_t address, const uint8_t* from,
              uint64_t bytes) {
  Here here;
  CUresult status = PageStream(session, context, &here);
  for (uint64_t at = 0; at < bytes && status == CUDA_SUCCESS;) {
    const uint64_t count = std::min<uint64_t>(bytes - at, wire::kPieceBytes);
    PostOptions options = CountedWork(here, count, Reach::kNamed);
    options.bulk = from + at;
    options.bulk_bytes = count;
    status = session.channel().Post<op_rgpuCopyHtoD>(
        here.issuer(), {address + at, count, count, 1, here.stream->wire, 1}, options);
    at += count;
  }
  return status;
}

CUresult Settle(Session& session, Context& context) {
  Here here;
  if (const CUresult status = PageStream(session, context, &here); status != CUDA_SUCCESS) {
    return status;
  }
  rgpuStreamSynchronize_Reply reply;
  return session.channel().Call<op_rgpuStreamSynchronize>(here.issuer(), {here.stream->wire},
                                                          &reply);
}

}  // namespace rgpu::shim::traffic
