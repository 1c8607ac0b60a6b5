#include "rgpu_server/executor/poller.h"

#include <algorithm>
#include <chrono>

#include "gen/notices.gen.h"
#include "gen/opcodes.gen.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/notice.h"

namespace rgpu::exec {

namespace {

using std::chrono::microseconds;

// Pause between two polls while a thread waits for a notice or bytes: first, and at most.
constexpr microseconds kShortest{20};
constexpr microseconds kUrgent{200};
// The same while only credits and staging memory are outstanding.
constexpr microseconds kCalm{250};
constexpr microseconds kLongest{2000};
// After a sticky error no thread waits for completions.
constexpr microseconds kSpent{100'000};
constexpr int kQuietTicks = 5;
// While the outbox holds more than this, because the client reads slowly, deliveries stay in their
// slots.
constexpr size_t kOutboxRoom = 1U << 20;

}  // namespace

void Poller::Start() {
  NeedThread("rgpu-poll", [this] { Run(); });
}

void Poller::Add(const std::shared_ptr<Stream>& stream, bool quiet) {
  if (!stream->polled) {
    stream->polled = true;
    streams_.push_back(stream);
  }
  if (!quiet) Wake();
}

void Poller::Wake() {
  if (!asleep_) return;
  asleep_ = false;
  wakes_.notify_one();
}

void Poller::Watch(const Watched& watched) {
  std::erase_if(watched_, [&](const Watched& other) {
    return other.object == watched.object && other.context == watched.context &&
           other.thread == watched.thread;
  });
  watched_.push_back(watched);
  Hurry();
}

void Poller::Hurry() {
  hurried_ = true;
  if (!asleep_ && !slow_) return;
  asleep_ = false;
  slow_ = false;
  wakes_.notify_one();
}

void Poller::AdvanceAll() {
  for (size_t i = 0; i < streams_.size(); ++i) {
    const std::shared_ptr<Stream> stream = streams_[i];
    if (stream->context->dead) continue;
    if (executor_.MakeCurrent(*stream->context) == CUDA_SUCCESS) executor_.order().Advance(*stream);
  }
}

void Poller::Remove(const Context& context) {
  for (const auto& stream : streams_) {
    if (stream->context == &context) executor_.gate().Forget(*stream);
  }
  std::erase_if(streams_, [&](const auto& stream) { return stream->context == &context; });
  std::erase_if(watched_, [&](const Watched& watched) { return watched.context == context.id; });
}

void Poller::Run() {
  std::unique_lock lock(executor_.mutex());
  microseconds pause = kShortest;
  int quiet = 0;
  for (;;) {
    hurried_ = false;
    const bool progress = Tick(lock);
    executor_.FlushNotices();
    const bool idle = streams_.empty() && watched_.empty() && !executor_.reaper().waits();
    quiet = idle ? quiet + 1 : 0;
    if (quiet > kQuietTicks) {
      asleep_ = true;
      wakes_.wait(lock, [this] { return !asleep_; });
      quiet = 0;
      pause = kShortest;
      continue;
    }
    const bool urgent = !watched_.empty() || delivering_ || hurried_;
    const microseconds first = urgent ? kShortest : kCalm;
    const microseconds last = urgent ? kUrgent : kLongest;
    pause = progress || hurried_ ? first : std::clamp(pause * 2, first, last);
    if (executor_.sticky() != CUDA_SUCCESS) pause = kSpent;
    slow_ = pause > kUrgent;
    wakes_.wait_for(lock, pause);
  }
}

bool Poller::Tick(std::unique_lock<std::mutex>& lock) {
  bool progress = false;
  delivering_ = false;
  for (size_t i = 0; i < streams_.size(); ++i) {
    const std::shared_ptr<Stream> stream = streams_[i];
    const std::shared_ptr<Context> context = stream->context->shared_from_this();
    if (context->dead || executor_.MakeCurrent(*context) != CUDA_SUCCESS) continue;
    const uint64_t before = stream->completed;
    progress |= SendDeliveries(*stream, lock);
    executor_.order().Advance(*stream);
    progress |= stream->completed != before;
    delivering_ |= !stream->deliveries.empty();
  }
  std::erase_if(streams_, [](const auto& stream) {
    const bool outstanding = !stream->outstanding.empty() || !stream->deliveries.empty();
    stream->polled = outstanding && !stream->context->dead;
    return !stream->polled;
  });
  progress |= TickWatches();
  executor_.reaper().Settle();
  executor_.gate().Alive();
  return progress;
}

bool Poller::TickWatches() {
  bool progress = false;
  std::erase_if(watched_, [&](const Watched& watched) {
    const CUresult result = executor_.Query(*watched.point);
    if (result == CUDA_ERROR_NOT_READY) return false;
    executor_.Check(result, watched.context);
    wire::FrameHeader header = NoticeHeader(wire::Notice::kCompleted);
    header.status = static_cast<int32_t>(result);
    const uint64_t behind = executor_.Behind(&watched.point->frontier);
    header.watermark = std::min(behind, executor_.deliveries_sent());
    header.thread = watched.thread;
    header.context = watched.context;
    transport::FrameBuffer& notices = executor_.notices(behind);
    wire::Writer writer = notices.Begin(header);
    // No time: the client asks with rgpuEventElapsedTime.
    Put(writer, wire::Completed{watched.object, watched.version, 0});
    notices.End();
    progress = true;
    return true;
  });
  return progress;
}

bool Poller::SendDeliveries(Stream& stream, std::unique_lock<std::mutex>& lock) {
  bool progress = false;
  while (!stream.deliveries.empty() && !stream.sending) {
    const std::shared_ptr<Delivery> delivery = stream.deliveries.front();
    if (delivery->chunks.empty()) break;
    Delivery::Chunk& first = delivery->chunks.front();
    if (executor_.outbox().queued_bytes() > kOutboxRoom) break;
    const CUresult result = executor_.Query(*first.point);
    if (result != CUDA_SUCCESS) {
      if (result != CUDA_ERROR_NOT_READY) executor_.Check(result, delivery->context);
      break;
    }
    const Delivery::Chunk chunk = std::move(first);
    delivery->chunks.pop_front();
    const bool last = delivery->chunks.empty() && delivery->to_come_bytes == 0;
    stream.sending = true;
    lock.unlock();
    const uint64_t number = Send(*delivery, chunk, last);
    lock.lock();
    delivery->sent = number;
    stream.sending = false;
    progress = true;
    if (!last) continue;
    delivery->done = true;
    --stream.context->deliveries;
    stream.deliveries.pop_front();
    executor_.changed().notify_all();
  }
  return progress;
}

// Returns the number of the delivery frame.
uint64_t Poller::Send(const Delivery& delivery, const Delivery::Chunk& chunk, bool last) {
  const uint64_t number = executor_.CountDelivery();
  wire::FrameHeader header;
  header.kind = wire::Kind::kDelivery;
  header.opcode = delivery.opcode;
  header.flags = last ? wire::kLast : 0;
  header.seq = delivery.seq;
  header.watermark = number;
  header.thread = delivery.thread;
  header.context = delivery.context;
  const uint64_t offset = chunk.offset;
  executor_.outbox().PostBulk(header, wire::Bytes(&offset, sizeof offset),
                              {chunk.piece.data, chunk.piece.size}, chunk.piece.keep, number);
  return number;
}

}  // namespace rgpu::exec
