#include "rgpu_emu/device/context.h"

#include <algorithm>
#include <chrono>

#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/function.h"
#include "rgpu_emu/device/graph_capture.h"
#include "rgpu_emu/device/graph_memory.h"

namespace rgpu::emu {
namespace {

constexpr auto kDrainTime = std::chrono::seconds(1);
constexpr auto kCancelTime = std::chrono::seconds(5);
constexpr auto kCancelStep = std::chrono::milliseconds(20);
constexpr auto kDrainStep = std::chrono::milliseconds(1);

constexpr uint64_t kDefaultStack = 1024;

std::atomic<uint64_t> next_context_id{1};

bool DoneWithin(const Fences& fences, std::chrono::nanoseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!AllDone(fences)) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(kDrainStep);
  }
  return true;
}

}  // namespace

Context::Context(uint64_t context_handle, bool is_primary, unsigned context_flags)
    : handle(context_handle),
      id(next_context_id.fetch_add(1)),
      primary(is_primary),
      flags(context_flags) {
  limits[CU_LIMIT_STACK_SIZE] = kDefaultStack;
  limits[CU_LIMIT_PRINTF_FIFO_SIZE] = uint64_t{1} << 20;
  limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
  limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
  limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
}

void Context::Open() { legacy_ = NewStream(StreamKind::kLegacy, 0); }

CUresult Context::Status() const {
  const int own = sticky_.load(std::memory_order_acquire);
  return static_cast<CUresult>(
      own != CUDA_SUCCESS ? own : TheDevice().lost.load(std::memory_order_acquire));
}

void Context::Fail(CUresult result) {
  if (cancelled()) return;
  int first = CUDA_SUCCESS;
  if (!failed_.compare_exchange_strong(first, result)) result = static_cast<CUresult>(first);
  // The error becomes visible only when the device is idle: a host that shares the device may then
  // give it to another process.
  Device& device = TheDevice();
  const bool all = result != CUDA_ERROR_ASSERT;
  device.runner->StopAll(all ? nullptr : this, result);
  sticky_.store(result);
  if (!all) return;
  int none = CUDA_SUCCESS;
  device.lost.compare_exchange_strong(none, result);
}

std::shared_ptr<Stream> Context::NewStream(StreamKind kind, int priority) {
  auto stream = std::make_shared<Stream>(shared_from_this(), kind, priority);
  const std::lock_guard lock(streams_mutex_);
  streams_.push_back(stream);
  return stream;
}

void Context::Forget(const Stream* stream) {
  std::shared_ptr<Stream> last;  // destroyed after the lock is released
  const std::lock_guard lock(streams_mutex_);
  const auto it = std::find_if(streams_.begin(), streams_.end(),
                               [&](const auto& s) { return s.get() == stream; });
  if (it == streams_.end()) return;
  last = std::move(*it);
  streams_.erase(it);
}

std::shared_ptr<Stream> Context::PerThread() {
  const auto self = std::this_thread::get_id();
  {
    const std::lock_guard lock(streams_mutex_);
    const auto it = per_thread_.find(self);
    if (it != per_thread_.end()) return it->second;
  }
  auto stream = NewStream(StreamKind::kBlocking, 0);
  const std::lock_guard lock(streams_mutex_);
  per_thread_[self] = stream;
  return stream;
}

void Context::DropPerThread(std::thread::id thread) {
  std::shared_ptr<Stream> stream;
  {
    const std::lock_guard lock(streams_mutex_);
    const auto it = per_thread_.find(thread);
    if (it == per_thread_.end()) return;
    stream = std::move(it->second);
    per_thread_.erase(it);
  }
  graph::StreamGone(Graphs(), SiteOf(*stream));
  stream->Close();
}

bool Context::ReserveLocal(uint64_t per_thread, bool exactly) {
  // The default stack of every thread is part of the context.
  const uint64_t resident = static_cast<uint64_t>(SmCount()) * kThreadsPerSm;
  const uint64_t want = per_thread <= kDefaultStack ? 0 : per_thread * resident;
  Arena& arena = TheDevice().arena;
  const std::lock_guard lock(local_mutex_);
  if (want > local_charged_) {
    const uint64_t more = want - local_charged_;
    if (!arena.Charge(more)) {
      TrimPools(0);
      TheDevice().limbo.Reap();
      if (!arena.Charge(more)) return false;
    }
    TheDevice().runner->AddRoom(more);
    local_charged_ = want;
  } else if (exactly) {
    TheDevice().runner->TakeRoom(local_charged_ - want);
    arena.Uncharge(local_charged_ - want);
    local_charged_ = want;
  }
  return true;
}

Fences Context::Pending() {
  Fences out;
  const std::lock_guard lock(streams_mutex_);
  for (const auto& stream : streams_) {
    if (!stream->Idle()) out.push_back(stream->Tail());
  }
  return out;
}

void Context::PendingBlocking(Fences* out) {
  const std::lock_guard lock(streams_mutex_);
  for (const auto& stream : streams_) {
    if (stream->kind == StreamKind::kBlocking && !stream->Idle()) out->push_back(stream->Tail());
  }
}

void Context::HoldBehind(const Fences& places) {
  const std::lock_guard lock(held_mutex_);
  for (const Fence& place : places) {
    if (!place.Done()) held_.push_back(place);
  }
  holds_.store(!held_.empty(), std::memory_order_release);
}

void Context::GatherHeld(Fences* after) {
  if (!holds_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(held_mutex_);
  std::erase_if(held_, [](const Fence& place) { return place.Done(); });
  after->insert(after->end(), held_.begin(), held_.end());
  if (held_.empty()) holds_.store(false, std::memory_order_release);
}

void Context::Drain() {
  Device& device = TheDevice();
  const Fences pending = Pending();
  if (DoneWithin(pending, kDrainTime)) return;
  cancelled_.store(true, std::memory_order_release);
  // Repeatedly, because a kernel may have been about to start.
  const auto end = std::chrono::steady_clock::now() + kCancelTime;
  do {
    device.runner->Cancel(this, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  } while (!DoneWithin(pending, kCancelStep) && std::chrono::steady_clock::now() < end);
}

void Context::Destroy() {
  dying_.store(true, std::memory_order_release);
  graph::ContextGone(Graphs(), As<CUcontext>(handle));
  Drain();
  Device& device = TheDevice();
  const auto ours = [this](const auto& object) { return object.context() == this; };
  device.events.RemoveIf(ours);
  device.modules.RemoveIf(ours);
  device.functions.RemoveIf(ours);
  device.streams.RemoveIf([this](const Stream& stream) { return stream.context().get() == this; });
  const Fences left = Pending();
  for (const AllocationRef& allocation : device.arena.Owned(handle)) {
    // Memory that a stuck host function may still use stays mapped.
    if (!device.arena.Hide(allocation)) continue;
    const auto pool = allocation->pool;
    if (pool != nullptr) {
      pool->Free(allocation, nullptr, left);
    } else {
      device.limbo.Retire(allocation, left);
    }
  }
  std::vector<std::shared_ptr<Stream>> streams;
  {
    const std::lock_guard lock(streams_mutex_);
    streams = streams_;
    per_thread_.clear();
  }
  for (const auto& stream : streams) stream->Close();
  ForgetConditionals(*this);
  ReserveLocal(0, true);
  device.limbo.Reap();
}

CUresult WaitIn(Context& context, const Fences& fences) {
  WaitAll(fences);
  TheDevice().limbo.Reap();
  const CUresult status = context.Status();
  return status == CUDA_SUCCESS ? context.TakeDeferred() : status;
}

}  // namespace rgpu::emu
