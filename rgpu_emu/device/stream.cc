#include "rgpu_emu/device/stream.h"

#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <utility>

#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/exec/grid.h"
#include "rgpu_emu/device/hostile.h"

namespace rgpu::emu {
namespace {

// A stream without work for this long gives up its thread, because a session may have thousands of
// streams.
constexpr auto kIdleTime = std::chrono::milliseconds(200);

std::atomic<uint64_t> next_stream_id{16};
std::atomic<uint32_t> lane_threads{0};

}  // namespace

void Latch::Open() {
  const std::lock_guard lock(mutex_);
  open_.store(true, std::memory_order_release);
  opened_.notify_all();
}

void Latch::Wait() {
  if (IsOpen()) return;
  std::unique_lock lock(mutex_);
  opened_.wait(lock, [&] { return IsOpen(); });
}

bool Fence::Done() const {
  return (stream == nullptr || stream->Completed(seq)) && (latch == nullptr || latch->IsOpen());
}

void Fence::Wait() const {
  if (stream != nullptr) stream->WaitFor(seq);
  if (latch != nullptr) latch->Wait();
}

bool AllDone(const Fences& fences) {
  for (const Fence& fence : fences) {
    if (!fence.Done()) return false;
  }
  return true;
}

void WaitAll(const Fences& fences) {
  for (const Fence& fence : fences) fence.Wait();
}

Stream::Stream(std::shared_ptr<Context> context, StreamKind stream_kind, int stream_priority)
    : handle(NewHandle(HandleKind::kStream)),
      id(next_stream_id.fetch_add(1)),
      kind(stream_kind),
      priority(stream_priority),
      context_(std::move(context)) {}

// A command of the legacy stream follows all blocking streams. A command of a blocking stream
// follows the legacy stream.
void Stream::Gather(Fences* after) {
  context_->GatherHeld(after);
  if (kind == StreamKind::kLegacy) {
    context_->PendingBlocking(after);
  } else if (kind == StreamKind::kBlocking && !context_->legacy()->Idle()) {
    after->push_back(context_->legacy()->Tail());
  }
}

CUresult Stream::Push(Command command, Fence* place) {
  for (;;) {
    {
      const auto order =
          Barrier() ? std::unique_lock(context_->order()) : std::unique_lock<std::mutex>();
      const std::lock_guard lock(mutex_);
      if (closed_ || context_->dying()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
      if (queue_.size() < QueueLimit()) {
        if (!started_ && !StartThread()) return CUDA_ERROR_OUT_OF_MEMORY;
        if (!command.inside) Gather(&command.after);
        queue_.push_back(std::move(command));
        const uint64_t seq = issued_.fetch_add(1, std::memory_order_acq_rel) + 1;
        if (place != nullptr) *place = {shared_from_this(), seq};
        work_.notify_one();
        return CUDA_SUCCESS;
      }
    }
    std::unique_lock lock(mutex_);
    ++pushing_;
    done_.wait(lock, [&] { return queue_.size() < QueueLimit() || closed_; });
    --pushing_;
  }
}

bool Stream::NothingBefore() {
  if (Hostile()) return false;
  const auto order =
      Barrier() ? std::unique_lock(context_->order()) : std::unique_lock<std::mutex>();
  Fences after;
  Gather(&after);
  return Idle() && after.empty();
}

CUresult Stream::RunNow(const std::function<CUresult()>& run) {
  const CUresult status = context_->Status();
  if (status != CUDA_SUCCESS) return status;
  const CUresult result = run();
  TheDevice().values.MemoryChanged();
  return result;
}

CUresult Stream::PushAndWait(std::function<CUresult()> run) {
  if (NothingBefore()) return RunNow(run);
  CUresult own = CUDA_SUCCESS;
  Fence place;
  // The caller waits below, so `own` outlives the command.
  Command command;
  command.run = [&own, body = std::move(run)] {
    own = body();
    return CUDA_SUCCESS;
  };
  const CUresult pushed = Push(std::move(command), &place);
  if (pushed != CUDA_SUCCESS) return pushed;
  place.Wait();
  const CUresult status = context_->Status();
  return status == CUDA_SUCCESS ? own : status;
}

Fences Stream::Snapshot() {
  Fences out;
  if (kind == StreamKind::kLegacy) {
    const std::lock_guard order(context_->order());
    context_->PendingBlocking(&out);
    out.push_back(Tail());
  } else {
    out.push_back(Tail());
  }
  return out;
}

void Stream::WaitFor(uint64_t seq) {
  if (Completed(seq)) return;
  std::unique_lock lock(mutex_);
  const auto mine = waited_for_.insert(seq);
  done_.wait(lock, [&] { return Completed(seq); });
  waited_for_.erase(mine);
}

void Stream::Close() {
  bool idle = false;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    idle = !started_;
    work_.notify_all();
    done_.notify_all();
  }
  if (idle) context_->Forget(this);
}

bool Stream::TakeLaneThread() const {
  if (!lane_ || lane_threads.fetch_add(1) < kMostLaneThreads) return true;
  lane_threads.fetch_sub(1);
  return false;
}

bool Stream::StartThread() {
  if (!TakeLaneThread()) return false;
  auto* self = new std::shared_ptr<Stream>(shared_from_this());
  // Signals belong to the program, whose own threads must receive them.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&all, fault);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  // Kernels run on this stack, so its guard is larger than any frame of compiled code.
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setguardsize(&attributes, size_t{1} << 20);
  pthread_attr_setstacksize(&attributes, kKernelStackBytes);
  pthread_t thread;
  const int error = pthread_create(&thread, &attributes, &Stream::Entry, self);
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) {
    delete self;
    if (lane_) lane_threads.fetch_sub(1);
    return false;
  }
  pthread_detach(thread);
  started_ = true;
  return true;
}

void* Stream::Entry(void* self) {
  const std::unique_ptr<std::shared_ptr<Stream>> stream(
      static_cast<std::shared_ptr<Stream>*>(self));
  (*stream)->Main();
  if ((*stream)->lane_) lane_threads.fetch_sub(1);
  return nullptr;
}

void Stream::Main() {
  for (;;) {
    Command command;
    {
      std::unique_lock lock(mutex_);
      // Reads the clock only if there is nothing to do.
      const auto ready = [&] { return !queue_.empty() || closed_; };
      if (!ready()) work_.wait_for(lock, kIdleTime, ready);
      if (queue_.empty()) {
        if (closed_) break;
        started_ = false;  // the next command starts a new thread
        return;
      }
      command = std::move(queue_.front());
    }
    RunOne(&command);
    // Release what the command owns before the command counts as done.
    command = Command();
    HostilePause();
    const std::lock_guard lock(mutex_);
    queue_.pop_front();
    const uint64_t completed = completed_.fetch_add(1, std::memory_order_acq_rel) + 1;
    // Wakes threads only if one waits for this command, because each wakeup costs time.
    const bool awaited = !waited_for_.empty() && *waited_for_.begin() <= completed;
    if (awaited || pushing_ > 0) done_.notify_all();
  }
  context_->Forget(this);
}

void Stream::RunOne(Command* command) {
  WaitAll(command->after);
  HostilePause();
  const bool failed =
      context_->failed().load() != CUDA_SUCCESS || context_->Status() != CUDA_SUCCESS;
  if (failed && !command->always) return;
  if (context_->cancelled() && !command->always) return;
  const CUresult result = command->run();
  TheDevice().values.MemoryChanged();
  if (result != CUDA_SUCCESS) context_->Fail(result);
}

}  // namespace rgpu::emu
