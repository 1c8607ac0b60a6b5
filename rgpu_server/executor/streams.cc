// Puts work into streams: fences before the work, markers after it.
#include <algorithm>
#include <utility>

#include "gen/notices.gen.h"
#include "rgpu_server/executor/executor.h"

namespace rgpu::exec {

namespace {

constexpr uint64_t kMarkBytes = 256U << 10;
constexpr size_t kMostOwnMarkers = 32;
constexpr uint64_t kMarkNs = 1'000'000;  // of predicted device time

}  // namespace

CUresult Executor::Prepare(Stream& stream) {
  Context& context = *stream.context;
  if (context.last != &stream) {
    if (const CUresult result = LeaveLast(stream); result != CUDA_SUCCESS) return result;
    context.last = &stream;
  }
  if (stream.fences_seen != context.fence_epoch) {
    if (const CUresult result = ApplyFences(stream); result != CUDA_SUCCESS) return result;
  }
  Inherit(stream);
  if (stream.legacy) {
    const CUresult result = MarkBefore(stream, context.behind_blocking);
    if (result != CUDA_SUCCESS) return result;
  }
  // In the legacy stream this event would be a barrier for all blocking streams.
  if (gate_.wants_begin() && !stream.legacy) {
    return Record(stream, kTimedEvent, &stream.before_unmarked);
  }
  return CUDA_SUCCESS;
}

// An event in the legacy stream is a barrier for all blocking streams, unless it directly follows
// the client's own command there. So the last command of the legacy stream is marked before the
// next command goes to another stream. Afterwards no work of the legacy stream ever lacks a marker.
CUresult Executor::LeaveLast(Stream& next) {
  Context& context = *next.context;
  Stream* last = context.last;
  if (last == nullptr) return CUDA_SUCCESS;
  const bool unmarked_legacy = last->legacy && last->issued > last->marked;
  if (!unmarked_legacy && !last->fence_pending) return CUDA_SUCCESS;
  if (last->issued > last->marked) {
    if (const CUresult result = Mark(*last, false); result != CUDA_SUCCESS) return result;
  }
  if (last->fence_pending) {
    last->fence_pending = false;
    std::erase_if(context.fences,
                  [&](const Fence& fence) { return fence.point->done || fence.source == last; });
    context.fences.push_back(
        {last, last->legacy, last->blocking, ++context.fence_epoch, last->last_point});
    context.fenced.Merge(last->frontier);
  }
  return CUDA_SUCCESS;
}

// A synchronous copy is complete for every later command. Streams that the device does not order
// after the copy are made to wait for it here.
CUresult Executor::ApplyFences(Stream& stream) {
  Context& context = *stream.context;
  for (const Fence& fence : context.fences) {
    if (fence.epoch <= stream.fences_seen || fence.source == &stream || fence.point->done) continue;
    const bool ordered = (fence.legacy && stream.blocking) || (stream.legacy && fence.blocking);
    if (ordered) continue;
    const CUresult result = WaitFor(stream, *fence.point, 0);
    if (result != CUDA_SUCCESS) return result;
  }
  stream.fences_seen = context.fence_epoch;
  stream.frontier.Merge(context.fenced);
  return CUDA_SUCCESS;
}

// The legacy stream and the blocking streams wait for each other, so deliveries of the one also
// precede later work of the other. For the legacy stream, simply all deliveries in the outbox
// count.
void Executor::Inherit(Stream& stream) {
  Context& context = *stream.context;
  if (stream.legacy) {
    stream.frontier.sent = deliveries_sent();
    if (context.deliveries == 0) return;
    for (const auto& other : context.streams) {
      if (other->blocking && other.get() != &stream) stream.frontier.Merge(other->frontier);
    }
  } else if (stream.blocking) {
    context.legacy->frontier.Settle();
    stream.frontier.Merge(context.legacy->frontier);
  }
}

// Passes stalls on between the legacy stream and blocking streams, which wait for each other.
// Called only after the driver has accepted the work: refused work orders nothing.
void Executor::ComeBehind(Stream& stream) {
  if (!stream.blocking) return;
  Context& context = *stream.context;
  stream.behind.Merge(stream.legacy ? context.behind_blocking : context.behind_legacy);
  (stream.legacy ? context.behind_legacy : context.behind_blocking).Merge(stream.behind);
}

// Called before the stream starts to wait for the stalls `next`. If some are new, marks what was
// issued so far: that work may be running, and must be distinguishable from later work.
CUresult Executor::MarkBefore(Stream& stream, const Stalls& next) {
  if (stream.behind.Covers(next)) return CUDA_SUCCESS;
  if (stream.legacy) {  // all blocking streams then wait too
    gate_.MarkRest();
    return MakeCurrent(*stream.context);
  }
  if (stream.unmarked_load.empty() || stream.outstanding.size() >= kMostOwnMarkers) {
    return CUDA_SUCCESS;
  }
  return Mark(stream, !gate_.alone());
}

CUresult Executor::WaitFor(Stream& stream, const Point& point, unsigned int flags) {
  CUresult result = MarkBefore(stream, point.behind);
  if (result == CUDA_SUCCESS) {
    result = driver_->cuStreamWaitEvent(stream.handle, point.event, flags);
  }
  if (result != CUDA_SUCCESS) return result;
  stream.behind.Merge(point.behind);
  if (stream.legacy) stream.context->behind_legacy.Merge(point.behind);
  return CUDA_SUCCESS;
}

CUresult Executor::LaunchWait(Stream& stream, CUhostFn function, void* argument, Stall* place) {
  if (stream.legacy) {  // later work of blocking streams waits for it
    gate_.MarkRest();
    if (const CUresult result = MakeCurrent(*stream.context); result != CUDA_SUCCESS) return result;
  }
  *place = {stream.stalls, stream.stalls->last + 1};
  const Stall stall = *place;  // `place` may be gone when the call returns
  const CUresult result = driver_->cuLaunchHostFunc(stream.handle, function, argument);
  if (result != CUDA_SUCCESS) return result;
  stream.stalls->last = stall.number;
  stream.behind.Add(stall);
  ComeBehind(stream);
  return CUDA_SUCCESS;
}

CUresult Executor::Issued(Stream& stream, Work work, CUresult result) {
  if (result != CUDA_SUCCESS) return result;
  ++stream.issued;
  stream.unmarked_bytes += work.bytes;
  if (work.kind != nullptr) {
    ComeBehind(stream);
    gate_.Issued(stream, *work.kind, work.units);
  }
  if (work.keep != nullptr &&
      (stream.unmarked_keep.empty() || stream.unmarked_keep.back() != work.keep)) {
    stream.unmarked_keep.push_back(std::move(work.keep));
  }
  // Long work, and work of unknown duration, gets its own marker so that it is measured alone. The
  // number of markers is limited for a queue that does not progress.
  const Load& load = stream.unmarked_load;
  if ((load.ns() >= kMarkNs || !load.known()) && stream.outstanding.size() < kMostOwnMarkers) {
    return Mark(stream, !gate_.alone());
  }
  if (stream.credited - stream.marked_credited < kMarkCommands &&
      stream.unmarked_bytes < kMarkBytes) {
    return CUDA_SUCCESS;
  }
  return Mark(stream, false);
}

CUresult Executor::Record(Stream& stream, unsigned int flags, std::shared_ptr<Point>* point) {
  auto made = std::make_shared<Point>(stream.context->events, flags);
  CUresult result = stream.context->events->Take(flags, &made->event);
  if (result == CUDA_SUCCESS) result = driver_->cuEventRecord(made->event, stream.handle);
  if (result != CUDA_SUCCESS) return result;
  made->frontier.Merge(stream.frontier);
  made->behind.Merge(stream.behind);
  *point = std::move(made);
  return CUDA_SUCCESS;
}

CUresult Executor::Mark(Stream& stream, bool quiet) {
  std::shared_ptr<Point> point;
  // Metered work gets a timed event, so that the measurement does not depend on when a thread
  // looks.
  const unsigned int flags = stream.unmarked_load.empty() ? kInternalEvent : kTimedEvent;
  if (const CUresult result = Record(stream, flags, &point); result != CUDA_SUCCESS) {
    return result;
  }
  stream.last_point = point;
  stream.marked = stream.issued;
  stream.marked_credited = stream.credited;
  stream.unmarked_bytes = 0;
  if (!stream.unmarked_load.empty()) gate_.Marked(stream, point);
  Stalls behind = stream.BehindSoFar(std::exchange(stream.unmarked_behind, {}));
  stream.outstanding.push_back({std::move(point), stream.issued, stream.credited,
                                std::move(stream.unmarked_keep),
                                std::exchange(stream.unmarked_load, {}), std::move(behind),
                                stream.unmarked_since_ns, std::move(stream.before_unmarked)});
  stream.unmarked_keep.clear();
  stream.before_unmarked = nullptr;
  poller_.Add(stream.shared_from_this(), quiet);
  return CUDA_SUCCESS;
}

CUresult Executor::EverythingIn(Stream& stream, bool quiet, std::shared_ptr<Point>* point) {
  *point = nullptr;
  if (stream.idle()) return CUDA_SUCCESS;
  if (stream.issued > stream.marked) {
    if (const CUresult result = Mark(stream, quiet); result != CUDA_SUCCESS) return result;
  }
  *point = stream.last_point;
  return CUDA_SUCCESS;
}

CUresult Executor::EverythingIn(Context& context, bool quiet,
                                std::vector<std::shared_ptr<Point>>* points) {
  for (const auto& stream : context.streams) {
    std::shared_ptr<Point> point;
    const CUresult result = EverythingIn(*stream, quiet, &point);
    if (result != CUDA_SUCCESS) return result;
    if (point != nullptr) points->push_back(std::move(point));
  }
  return CUDA_SUCCESS;
}

void Executor::ReturnCredits(Stream& stream, uint64_t credited) {
  stream.returned = credited;
  wire::FrameHeader header;
  header.kind = wire::Kind::kNotice;
  header.opcode = static_cast<uint16_t>(wire::Notice::kCredit);
  header.thread = stream.thread;
  header.context = stream.context->id;
  wire::Writer writer = notices(0).Begin(header);
  Put(writer, wire::Credit{stream.id, stream.returned});
  notices_.End();
}

void Executor::ReturnCreditsOf(Stream& stream) {
  if (!stream.idle() || !stream.outstanding.empty()) {
    Mark(stream, false);
    return;
  }
  stream.marked_credited = stream.credited;
  ReturnCredits(stream, stream.credited);
}

void Executor::Reclaim(Stream& stream) {
  for (Marker& marker : stream.outstanding) {
    if (Query(*marker.point) != CUDA_SUCCESS) return;
    marker.keep.clear();
  }
}

void Executor::Advance(Stream& stream) {
  uint64_t credited = stream.returned;
  while (!stream.outstanding.empty()) {
    const CUresult result = Query(*stream.outstanding.front().point);
    // Check makes the error known even if the client never asks, so that the device is given back.
    if (result != CUDA_ERROR_NOT_READY) Check(result, stream.context->id);
    if (result != CUDA_SUCCESS) break;
    const Marker marker = std::move(stream.outstanding.front());
    stream.outstanding.pop_front();
    stream.completed = marker.issued;
    credited = std::max(credited, marker.credited);
    gate_.Completed(stream, marker);
  }
  if (credited > stream.returned) ReturnCredits(stream, credited);
}

}  // namespace rgpu::exec
