// Records of events: what cuEventRecord and cuCtxRecordEvent have in common.
#pragma once

#include "rgpu_client/shim/calls/here.h"

namespace rgpu::shim {

// Posts the command `request(version)`, which records `event` for the `version`-th time. The event
// stays as it was if the command cannot be posted.
template <typename Op, typename Request>
CUresult PostRecord(const Here& here, Event& event, PostOptions options, Request request) {
  uint64_t seq = 0;
  options.seq = &seq;
  const std::lock_guard lock(event.record_mutex);
  const uint64_t version = event.progress.version.load() + 1;
  const CUresult status = here.channel().Post<Op>(here.issuer(), request(version), options);
  if (status != CUDA_SUCCESS) return status;
  event.record_seq.store(seq);
  event.record_stream.store(here.stream == nullptr ? 0 : here.stream->wire);
  event.record_thread.store(here.stream == nullptr ? 0 : here.stream->thread);
  event.progress.version.store(version);
  return CUDA_SUCCESS;
}

// After a record of an event that processes share (CU_EVENT_INTERPROCESS), a wait for one, or a
// free of shared memory: returns when that has taken effect, because the program may then tell
// another process.
CUresult SettleShared(const Here& here);

}  // namespace rgpu::shim
