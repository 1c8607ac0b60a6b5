#include "rgpu_server/executor/stream_order.h"

#include <algorithm>
#include <utility>

#include "gen/notices.gen.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/notice.h"

namespace rgpu::exec {

namespace {

constexpr uint64_t kMarkBytes = 256U << 10;
constexpr size_t kMostOwnMarkers = 32;
// Drivers take about 1024. The rest is for markers and for what one more command puts there.
constexpr uint64_t kMostQueued = 896;
constexpr uint64_t kMostUnmarked = 256;  // so many need no credits
constexpr uint64_t kMarkNs = 1'000'000;  // of predicted device time

}  // namespace

StreamOrder::StreamOrder(Executor& executor) : executor_(executor), driver_(executor.driver()) {}

CUresult StreamOrder::Prepare(Stream& stream) {
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
    const CUresult result = MarkBefore(stream, context.order.behind_blocking);
    if (result != CUDA_SUCCESS) return result;
  }
  // In the legacy stream this event would be a barrier for all blocking streams.
  if (executor_.gate().wants_begin() && !stream.legacy) {
    return Record(stream, kTimedEvent, &stream.before_unmarked);
  }
  return CUDA_SUCCESS;
}

// An event in the legacy stream is a barrier for all blocking streams, unless it directly follows
// the client's own command there. So the last command of the legacy stream is marked before the
// next command goes to another stream. Afterwards no work of the legacy stream ever lacks a marker.
CUresult StreamOrder::LeaveLast(Stream& next) {
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
CUresult StreamOrder::ApplyFences(Stream& stream) {
  Context& context = *stream.context;
  if (stream.unfenced) {
    stream.fences_seen = context.fence_epoch;
    return CUDA_SUCCESS;
  }
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
void StreamOrder::Inherit(Stream& stream) {
  Context& context = *stream.context;
  if (stream.legacy) {
    stream.frontier.sent = executor_.deliveries_sent();
    if (context.deliveries == 0) return;
    for (const auto& other : context.streams) {
      if (other->blocking && other.get() != &stream) stream.frontier.Merge(other->frontier);
    }
  } else if (stream.blocking) {
    context.legacy->frontier.Settle();
    stream.frontier.Merge(context.legacy->frontier);
  }
}

// Before the stream comes behind client waits that it did not come behind yet, the work that it has
// gets a marker: that work may be running, and later work may not.
CUresult StreamOrder::MarkBefore(Stream& stream, const WaitPlaces& next) {
  switch (GateState::MustMark(stream, next)) {
    case GateState::MarkFirst::kAllStreams:
      executor_.gate().MarkRest();
      return executor_.MakeCurrent(*stream.context);
    case GateState::MarkFirst::kStream:
      if (stream.outstanding.size() < kMostOwnMarkers) return MarkNow(stream);
      return CUDA_SUCCESS;
    default:
      return CUDA_SUCCESS;
  }
}

CUresult StreamOrder::WaitFor(Stream& stream, const Point& point, unsigned int flags) {
  CUresult result = MarkBefore(stream, point.behind);
  if (result == CUDA_SUCCESS) {
    const Enqueuing enqueuing(enqueuing_);
    result = driver_->cuStreamWaitEvent(stream.handle, point.event, flags);
  }
  if (result != CUDA_SUCCESS) return result;
  ++stream.entries;
  executor_.gate().OrderedBehind(stream, point.behind);
  return CUDA_SUCCESS;
}

CUresult StreamOrder::LaunchWait(Stream& stream, CUhostFn function, void* argument,
                                 WaitPlace* place) {
  return Waiting(stream, place,
                 [&] { return stream.context->halts.Launch(stream.handle, function, argument); });
}

CUresult StreamOrder::BeforeWait(Stream& stream, WaitPlace* place) {
  if (stream.legacy) {  // blocking streams come behind it with their next work
    executor_.gate().MarkRest();
    const CUresult result = executor_.MakeCurrent(*stream.context);
    if (result != CUDA_SUCCESS) return result;
  }
  *place = {stream.waits, stream.waits->last + 1};
  return CUDA_SUCCESS;
}

CUresult StreamOrder::AfterWait(Stream& stream, CUresult result) {
  if (result == CUDA_SUCCESS) executor_.gate().WaitLaunched(stream);
  return result;
}

// Work that the stream has may be running, unlike what comes behind the wait.
CUresult StreamOrder::BeforeValueWait(Stream& stream, WaitPlace* place) {
  *place = {std::make_shared<ClientWaits>(), 1};
  WaitPlaces next;
  next.Add(*place);
  if (const CUresult result = MarkBefore(stream, next); result != CUDA_SUCCESS) return result;
  // Before the driver has the halt: its function may run at once.
  executor_.gate().ValueWaitLaunched(stream, *place);
  return CUDA_SUCCESS;
}

CUresult StreamOrder::AfterValueWait(Stream& stream, const WaitPlace& place, CUresult result) {
  stream.entries += 2;
  if (result != CUDA_SUCCESS) executor_.gate().ValueWaitRefused(place);
  return result;
}

CUresult StreamOrder::Issued(Stream& stream, Work work, CUresult result) {
  if (result != CUDA_SUCCESS) return result;
  ++stream.issued;
  if (stream.entries - stream.entries_done >= kMostQueued) {
    full_ = stream.Share();
    full_in_ = stream.context->weak_from_this();
    may_be_full_.store(true, std::memory_order_relaxed);
  }
  stream.unmarked_bytes += work.bytes;
  if (work.kind != nullptr) {
    executor_.gate().Issued(stream, *work.kind, work.units);
  }
  if (work.keep != nullptr &&
      (stream.unmarked_keep.empty() || stream.unmarked_keep.back() != work.keep)) {
    stream.unmarked_keep.push_back(std::move(work.keep));
  }
  // Long work, and work of unknown duration, gets its own marker so that it is measured alone. The
  // number of markers is limited for a queue that does not progress.
  const Load& load = stream.unmarked_load;
  if ((load.ns() >= kMarkNs || !load.known()) && stream.outstanding.size() < kMostOwnMarkers) {
    return MarkNow(stream);
  }
  if (stream.credited - stream.marked_credited < kMarkCommands &&
      stream.unmarked_bytes < kMarkBytes && stream.issued - stream.marked < kMostUnmarked) {
    return CUDA_SUCCESS;
  }
  return Mark(stream, false);
}

CUresult StreamOrder::Record(Stream& stream, unsigned int flags, std::shared_ptr<Point>* point) {
  auto made = std::make_shared<Point>(stream.context->events, flags);
  const CUresult result = stream.context->events->Take(flags, &made->event);
  return result == CUDA_SUCCESS ? RecordIn(stream, std::move(made), point) : result;
}

CUresult StreamOrder::RecordAgain(Stream& stream, const std::shared_ptr<Point>& original,
                                  std::shared_ptr<Point>* point) {
  return RecordIn(stream, std::make_shared<Point>(original), point);
}

CUresult StreamOrder::RecordIn(Stream& stream, std::shared_ptr<Point> made,
                               std::shared_ptr<Point>* point) {
  {
    const Enqueuing enqueuing(enqueuing_);
    const CUresult result = driver_->cuEventRecord(made->event, stream.handle);
    if (result != CUDA_SUCCESS) return result;
  }
  ++stream.entries;
  made->frontier.Merge(stream.frontier);
  made->behind.Merge(stream.behind);
  *point = std::move(made);
  return CUDA_SUCCESS;
}

std::shared_ptr<Point> StreamOrder::PointInWork(Stream& stream,
                                                const std::shared_ptr<Point>& original) {
  auto made = std::make_shared<Point>(original);
  made->frontier.Merge(stream.frontier);
  made->behind.Merge(stream.behind);
  return made;
}

CUresult StreamOrder::Mark(Stream& stream, bool quiet) {
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
  const uint64_t work = stream.unmarked_load.empty() ? 0 : executor_.gate().Marked(stream, point);
  stream.outstanding.push_back({std::move(point), stream.issued, stream.entries, stream.credited,
                                std::move(stream.unmarked_keep), work,
                                std::move(stream.before_unmarked)});
  stream.unmarked_keep.clear();
  stream.before_unmarked = nullptr;
  executor_.poller().Add(stream.Share(), quiet);
  return CUDA_SUCCESS;
}

CUresult StreamOrder::MarkNow(Stream& stream) { return Mark(stream, !executor_.gate().alone()); }

void StreamOrder::Drop(Stream& stream) {
  Context& context = *stream.context;
  if (context.last == &stream) {
    if (!stream.failed) LeaveLast(stream);
    context.last = nullptr;
  }
  std::erase_if(context.streams, [&](const auto& other) { return other.get() == &stream; });
  // A wait for the context does not wait for streams of ours (id 0).
  if (stream.failed || stream.id == 0 || stream.idle() || stream.last_point == nullptr) return;
  ForgetGone(context);
  context.gone.push_back({stream.last_point});
}

void StreamOrder::ForgetGone(Context& context) {
  std::erase_if(context.gone, [](const StreamEnd& end) {
    return end.point->done && end.point->frontier.Settle();
  });
}

CUresult StreamOrder::EverythingIn(Stream& stream, bool quiet, std::shared_ptr<Point>* point) {
  *point = nullptr;
  if (stream.idle()) return CUDA_SUCCESS;
  if (stream.issued > stream.marked) {
    if (const CUresult result = Mark(stream, quiet); result != CUDA_SUCCESS) return result;
  }
  *point = stream.last_point;
  return CUDA_SUCCESS;
}

CUresult StreamOrder::EverythingIn(Context& context, bool quiet,
                                   std::vector<std::shared_ptr<Point>>* points) {
  for (const auto& stream : context.streams) {
    std::shared_ptr<Point> point;
    const CUresult result = EverythingIn(*stream, quiet, &point);
    if (result != CUDA_SUCCESS) return result;
    if (point != nullptr) points->push_back(std::move(point));
  }
  ForgetGone(context);
  for (const StreamEnd& end : context.gone) points->push_back(end.point);
  return CUDA_SUCCESS;
}

CUresult StreamOrder::CountCredit(Stream& stream) {
  // Failed commands never reach Issued, which sets markers; so this sets one for them.
  if (stream.credited - stream.marked_credited >= kMarkCommands) {
    const CUresult result = Mark(stream, false);
    if (result != CUDA_SUCCESS) return result;
  }
  ++stream.credited;
  return CUDA_SUCCESS;
}

void StreamOrder::GiveBackCredit(Stream& stream) {
  ++stream.credited;
  ReturnCredits(stream, stream.credited);
}

void StreamOrder::ReturnCredits(Stream& stream, uint64_t credited) {
  stream.returned = credited;
  wire::FrameHeader header = NoticeHeader(wire::Notice::kCredit);
  header.thread = stream.thread;
  header.context = stream.context->id;
  transport::FrameBuffer& notices = executor_.notices(0);
  wire::Writer writer = notices.Begin(header);
  Put(writer, wire::Credit{stream.id, stream.returned});
  notices.End();
}

void StreamOrder::ReturnCreditsOf(Stream& stream) {
  if (!stream.idle() || !stream.outstanding.empty()) {
    Mark(stream, false);
    return;
  }
  stream.marked_credited = stream.credited;
  ReturnCredits(stream, stream.credited);
}

bool StreamOrder::QueueIsFull() {
  const std::shared_ptr<Stream> stream = full_.lock();
  const std::shared_ptr<Context> context = full_in_.lock();
  const bool works = stream != nullptr && context != nullptr && !context->dead &&
                     !context->closing && executor_.sticky() == CUDA_SUCCESS;
  bool full = works && executor_.MakeCurrent(*context) == CUDA_SUCCESS;
  if (full) {
    // Commands that took no credit may lack a marker.
    if (stream->entries > stream->entries_done && stream->outstanding.empty()) MarkNow(*stream);
    Advance(*stream);
    full = stream->entries - stream->entries_done >= kMostQueued;
  }
  if (!full) may_be_full_.store(false, std::memory_order_relaxed);
  return full;
}

void StreamOrder::Reclaim(Stream& stream) {
  for (Marker& marker : stream.outstanding) {
    if (executor_.Query(*marker.point) != CUDA_SUCCESS) return;
    marker.keep.clear();
  }
}

void StreamOrder::Advance(Stream& stream) {
  uint64_t credited = stream.returned;
  while (!stream.outstanding.empty()) {
    const CUresult result = executor_.Query(*stream.outstanding.front().point);
    // Check makes the error known even if the client never asks, so that the device is given back.
    if (result != CUDA_ERROR_NOT_READY) executor_.Check(result, stream.context->id);
    if (result != CUDA_SUCCESS) break;
    const Marker marker = std::move(stream.outstanding.front());
    stream.outstanding.pop_front();
    stream.completed = marker.issued;
    stream.entries_done = marker.entries;
    credited = std::max(credited, marker.credited);
    if (marker.work != 0) executor_.gate().Completed(stream, marker);
  }
  if (credited > stream.returned) ReturnCredits(stream, credited);
}

}  // namespace rgpu::exec
