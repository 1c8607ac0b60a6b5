// Work goes into streams here: fences before it, markers behind it.
#include <algorithm>

#include "rgpu_server/executor/executor.h"

namespace rgpu::exec {

namespace {

constexpr uint64_t kMarkBytes = 256U << 10;

void Merge(Frontier* into, const Frontier& from) {
  std::erase_if(*into, [](const auto& delivery) { return delivery->done; });
  for (const auto& delivery : from) {
    if (delivery->done || std::ranges::find(*into, delivery) != into->end()) continue;
    into->push_back(delivery);
  }
}

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
  if (context.deliveries > 0) Inherit(stream);
  return CUDA_SUCCESS;
}

// An event in the legacy stream is a barrier for all blocking streams, unless it stands directly
// behind the client's own command there.  So the last command is marked before the next one goes to
// another stream; afterwards nothing in the legacy stream ever lacks a marker.
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
  }
  return CUDA_SUCCESS;
}

// A synchronous copy is complete for every later command, also on streams the device does not order
// behind it.
CUresult Executor::ApplyFences(Stream& stream) {
  Context& context = *stream.context;
  for (const Fence& fence : context.fences) {
    if (fence.epoch <= stream.fences_seen || fence.source == &stream || fence.point->done) continue;
    const bool ordered = (fence.legacy && stream.blocking) || (stream.legacy && fence.blocking);
    if (ordered) continue;
    const CUresult result = driver_->cuStreamWaitEvent(stream.handle, fence.point->event, 0);
    if (result != CUDA_SUCCESS) return result;
  }
  stream.fences_seen = context.fence_epoch;
  return CUDA_SUCCESS;
}

// The legacy stream and the blocking streams wait for each other, so they also come behind each
// other's deliveries.
void Executor::Inherit(Stream& stream) {
  Context& context = *stream.context;
  if (stream.legacy) {
    for (const auto& other : context.streams) {
      if (other->blocking && other.get() != &stream) Merge(&stream.frontier, other->frontier);
    }
  } else if (stream.blocking) {
    Merge(&stream.frontier, context.legacy->frontier);
  }
}

CUresult Executor::Issued(Stream& stream, Work work, CUresult result) {
  if (result != CUDA_SUCCESS) return result;
  ++stream.issued;
  stream.unmarked_bytes += work.bytes;
  if (work.keep != nullptr &&
      (stream.unmarked_keep.empty() || stream.unmarked_keep.back() != work.keep)) {
    stream.unmarked_keep.push_back(std::move(work.keep));
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
  if (!stream.frontier.empty()) Merge(&made->frontier, stream.frontier);
  *point = std::move(made);
  return CUDA_SUCCESS;
}

CUresult Executor::Mark(Stream& stream, bool quiet) {
  std::shared_ptr<Point> point;
  if (const CUresult result = Record(stream, kInternalEvent, &point); result != CUDA_SUCCESS) {
    return result;
  }
  stream.last_point = point;
  stream.marked = stream.issued;
  stream.marked_credited = stream.credited;
  stream.unmarked_bytes = 0;
  stream.outstanding.push_back(
      {std::move(point), stream.issued, stream.credited, std::move(stream.unmarked_keep)});
  stream.unmarked_keep.clear();
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
  header.watermark = deliveries_sent();
  header.thread = stream.thread;
  header.context = stream.context->id;
  wire::Writer writer = notices_.Begin(header);
  writer.Put(stream.id);
  writer.Put(stream.returned);
  notices_.End();
}

void Executor::Advance(Stream& stream) {
  uint64_t credited = stream.returned;
  while (!stream.outstanding.empty()) {
    Marker& marker = stream.outstanding.front();
    if (Query(*marker.point) != CUDA_SUCCESS) break;
    stream.completed = marker.issued;
    credited = std::max(credited, marker.credited);
    stream.outstanding.pop_front();
  }
  if (credited > stream.returned) ReturnCredits(stream, credited);
}

}  // namespace rgpu::exec
