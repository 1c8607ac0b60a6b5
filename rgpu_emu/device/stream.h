// Streams: queues of commands in order, each with a thread of its own. The thread starts with a
// command, and ends when the stream has had no work for a while.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "gen/cuda_abi.gen.h"
#include "rgpu_common/native/base/stream_attributes.h"

namespace rgpu::emu {

class Context;
class Stream;

// Something that becomes done once.
class Latch {
 public:
  void Open();
  bool IsOpen() const { return open_.load(std::memory_order_acquire); }
  void Wait();

 private:
  std::atomic<bool> open_{false};
  std::mutex mutex_;
  std::condition_variable opened_;
};

// A place in a stream. It is done when everything before it is done, and it stays valid after the
// stream was destroyed. A place within the launch of a graph is a latch.
struct Fence {
  std::shared_ptr<Stream> stream;
  uint64_t seq = 0;
  std::shared_ptr<Latch> latch = nullptr;

  bool Done() const;
  void Wait() const;
};

using Fences = std::vector<Fence>;

bool AllDone(const Fences& fences);
void WaitAll(const Fences& fences);

struct Command {
  std::function<CUresult()> run;
  Fences
      after;  // waited for before it runs; the stream adds what the legacy stream's rules ask for
  bool always = false;  // also runs in a failed context, because it gives something back
  bool inside = false;  // part of a command that has begun, so it follows nothing else
};

enum class StreamKind { kLegacy, kBlocking, kNonBlocking };

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  Stream(std::shared_ptr<Context> context, StreamKind kind, int priority);

  // Appends a command; blocks while the queue is full. `place` (may be null) gets the command's
  // fence.
  CUresult Push(Command command, Fence* place = nullptr);
  // Returns true if no pending command would have to precede one pushed now. Always false in
  // hostile timing.
  bool NothingBefore();
  // Runs `run` on the calling thread, unless the context has failed. NothingBefore must be true.
  CUresult RunNow(const std::function<CUresult()>& run);
  // Runs `run` at once on the calling thread if no pending command must precede it. Otherwise
  // appends it and waits. Returns the result of `run`.
  CUresult PushAndWait(std::function<CUresult()> run);

  // Returns the fences that a wait for this stream waits for: its last command, and for the legacy
  // stream also the last command of each blocking stream.
  Fences Snapshot();
  Fence Tail() { return {shared_from_this(), issued_.load(std::memory_order_acquire)}; }
  bool Idle() const {
    return completed_.load(std::memory_order_acquire) == issued_.load(std::memory_order_acquire);
  }
  bool Completed(uint64_t seq) const { return completed_.load(std::memory_order_acquire) >= seq; }
  void WaitFor(uint64_t seq);

  // Accepts no more commands; the thread ends after the last one.
  void Close();
  // The stream is a lane of a graph. All lanes of the process have at most kMostLaneThreads; Push
  // fails for one more. Called before the first command.
  void MakeLane() { lane_ = true; }
  static constexpr uint32_t kMostLaneThreads = 256;

  const uint64_t handle;
  const uint64_t id;
  const StreamKind kind;
  const int priority;
  base::StreamAttributes attributes;
  const std::shared_ptr<Context>& context() const { return context_; }

 private:
  bool Barrier() const { return kind != StreamKind::kNonBlocking; }
  void Gather(Fences* after);
  bool StartThread();
  bool TakeLaneThread() const;
  void Main();
  void RunOne(Command* command);
  static void* Entry(void* self);

  const std::shared_ptr<Context> context_;
  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable done_;
  std::deque<Command> queue_;
  std::multiset<uint64_t> waited_for_;
  uint32_t pushing_ = 0;  // that wait for room in the queue
  std::atomic<uint64_t> issued_{0};
  std::atomic<uint64_t> completed_{0};
  bool started_ = false;  // the stream has a thread
  bool closed_ = false;
  bool lane_ = false;
};

}  // namespace rgpu::emu
