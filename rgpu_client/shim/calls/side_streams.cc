#include "rgpu_client/shim/calls/side_streams.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

namespace rgpu::shim {
namespace {

constexpr size_t kMostOfOneContext = 16;

struct SideStream {
  uint64_t id = 0;
  PointRef until;
};

struct OfContext {
  std::vector<SideStream> streams;
  size_t next = 0;  // which one is shared next
};

struct SideStreams {
  std::mutex mutex;
  std::map<uint64_t, OfContext> contexts;
};

// A pointer, because a forked child needs a new mutex.
SideStreams* g_streams = new SideStreams;

CUresult Make(const Here& here, uint64_t* id) {
  auto made = std::make_unique<Stream>();
  made->context = here.context_id();
  made->flags = CU_STREAM_NON_BLOCKING;
  Stream* const stream = made.get();
  *id = here.session->handles().Add(std::move(made));
  if (*id == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  stream->wire = *id;
  return here.channel().Post<op_rgpuStreamCreate>(here.issuer(), {*id, CU_STREAM_NON_BLOCKING, 0});
}

// The place of a stream that may be used now: a free one, a new one, or one to share.
CUresult Choose(const Here& here, OfContext& of, SideStream** chosen) {
  const auto free = [](const SideStream& stream) { return stream.until->reached(); };
  const auto found = std::ranges::find_if(of.streams, free);
  if (found != of.streams.end()) {
    *chosen = &*found;
    return CUDA_SUCCESS;
  }
  if (of.streams.size() == kMostOfOneContext) {
    *chosen = &of.streams[of.next++ % kMostOfOneContext];
    return CUDA_SUCCESS;
  }
  SideStream made;
  if (const CUresult status = Make(here, &made.id); status != CUDA_SUCCESS) return status;
  *chosen = &of.streams.emplace_back(std::move(made));
  return CUDA_SUCCESS;
}

}  // namespace

CUresult SideStreamHere(Session& session, Context& context, const PointRef& until, Here* here) {
  *here = {&session, &ThisThread(), &context, nullptr};
  const std::lock_guard lock(g_streams->mutex);
  // Handles are never used twice, so streams of contexts that are gone are no longer found.
  std::erase_if(g_streams->contexts, [](const auto& entry) {
    return SessionOfContext(entry.first)->handles().template Find<Context>(entry.first) == nullptr;
  });
  SideStream* chosen = nullptr;
  const CUresult status = Choose(*here, g_streams->contexts[context.id], &chosen);
  if (status != CUDA_SUCCESS) return status;
  chosen->until = until;
  here->stream = session.handles().Find<Stream>(chosen->id);
  return here->stream == nullptr ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

void ForgetSideStreams() { g_streams = new SideStreams; }

}  // namespace rgpu::shim
