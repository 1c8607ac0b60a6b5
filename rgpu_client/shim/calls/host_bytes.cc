#include "rgpu_client/shim/calls/host_bytes.h"

#include <algorithm>

namespace rgpu::shim {

CUresult WaitForHostBytes(const Here& here, uint64_t address, uint64_t bytes) {
  CUresult status = CUDA_SUCCESS;
  for (Session* const session : LiveSessions()) {
    const CUresult waited = session->channel().WaitForDeliveries(address, bytes);
    if (session == here.session) status = waited;
  }
  return status;
}

bool ExpectsIn(const HostRegion& region) {
  const auto address = reinterpret_cast<uint64_t>(region.base);
  const uint64_t span = region.span();
  const SessionList sessions = LiveSessions();
  return std::any_of(sessions.begin(), sessions.end(),
                     [&](Session* session) { return session->channel().ExpectsIn(address, span); });
}

bool HostBytesAreOrdered() {
  const SessionList sessions = LiveSessions();
  return std::any_of(sessions.begin(), sessions.end(), [](const Session* session) {
    return session->host_ordered_contexts.load() != 0;
  });
}

}  // namespace rgpu::shim
