// Host functions and callbacks: the stream stands at their place until they have returned.
#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/contexts.h"
#include "rgpu_client/shim/graphs/graphs.h"
#include "rgpu_client/shim/pump.h"

namespace rgpu::shim {
namespace {

CUresult Add(const HostCall& call) {
  Here here;
  if (!call) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = StreamHere(call.stream, &here); bad != CUDA_SUCCESS) return bad;
  CUresult over = CUDA_SUCCESS;
  if (call.callback != nullptr) {  // callbacks cannot be captured
    if (over = CheckStreamWait(here); over != CUDA_SUCCESS) return over;
  }
  const bool captured = Captured(here, &over, [&](graph::Params* params) {
    *params = graph::HostParams{call.function, call.data};
    return CUDA_SUCCESS;
  });
  if (captured) return over;
  PostOptions options = CountedWork(here, 0);
  uint64_t seq = 0;
  options.seq = &seq;
  const CUresult status = here.channel().PostHostCall<op_rgpuHostFunction>(
      here.issuer(), {here.stream->wire}, options, call);
  if (status != CUDA_SUCCESS) return status;
  // The function may write pinned memory that a later copy reads.
  StartHostOrder(here, seq);
  Pump::Need(&here.channel());
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn fn, void* data) {
  return Add({.function = fn, .stream = stream, .data = data});
}

CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void* data, unsigned int) {
  return Add({.callback = callback, .stream = stream, .data = data});
}

}  // namespace rgpu::shim
