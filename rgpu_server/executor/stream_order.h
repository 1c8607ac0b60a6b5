// Puts work into streams in the order that CUDA promises: fences before the work, markers after it.
//
// A stream's own counters and markers are in `Stream` (streams.h), so that all streams of a session
// share one object of this class. All functions are called with the executor's lock held.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "rgpu_server/executor/streams.h"

namespace rgpu::exec {

class Executor;

// What a piece of work holds until it completes, and how its device time is predicted.
struct Work {
  uint64_t bytes = 0;  // bytes of staging memory
  std::shared_ptr<const void> keep;
  const std::shared_ptr<Estimate>* kind = nullptr;  // null: not device work
  uint64_t units = 0;                               // of `kind`: launches or bytes
};

class StreamOrder {
 public:
  explicit StreamOrder(Executor& executor);

  // Puts work into a stream. `call(CUstream)` is the driver call, which must not block.
  template <typename F>
  CUresult Issue(Stream& stream, Work work, F&& call) {
    const Enqueuing enqueuing(enqueuing_);
    if (const CUresult result = Prepare(stream); result != CUDA_SUCCESS) return result;
    const uint64_t before = stream.entries;
    const CUresult result = call(stream.handle);
    if (stream.entries == before) ++stream.entries;
    return Issued(stream, std::move(work), result);
  }
  // Puts a halt into the stream (halts.h), in whose function it waits for the client; used within
  // the `call` of Issue. `place` receives the place that the function passes to Gate::ClientWait,
  // before the function can run.
  CUresult LaunchWait(Stream& stream, CUhostFn function, void* argument, WaitPlace* place);
  // The same for other work that waits for the client: `call` is the driver call.
  template <typename F>
  CUresult Waiting(Stream& stream, WaitPlace* place, F&& call) {
    if (const CUresult result = BeforeWait(stream, place); result != CUDA_SUCCESS) return result;
    return AfterWait(stream, call());
  }
  // Puts a wait for a value in memory into the stream, and a halt behind it, whose function calls
  // Gate::GoOn with `*place`; used within the `call` of Issue. `call` is the driver call.
  template <typename F>
  CUresult WaitForValue(Stream& stream, CUhostFn function, void* argument, WaitPlace* place,
                        F&& call) {
    if (const CUresult result = BeforeValueWait(stream, place); result != CUDA_SUCCESS) {
      return result;
    }
    CUresult result = call();
    if (result == CUDA_SUCCESS) {
      result = stream.context->halts.Launch(stream.handle, function, argument);
    }
    return AfterValueWait(stream, *place, result);
  }
  // Makes the stream wait for `point`.
  CUresult WaitFor(Stream& stream, const Point& point, unsigned int flags);
  // Returns a point that completes when everything issued to `stream` so far is complete; null if
  // that is known already. `quiet`: the caller waits itself, so the poller need not wake.
  CUresult EverythingIn(Stream& stream, bool quiet, std::shared_ptr<Point>* point);
  // The same for all streams of a context, also those that are destroyed; streams known to be
  // complete add no point.
  CUresult EverythingIn(Context& context, bool quiet, std::vector<std::shared_ptr<Point>>* points);
  // Records an event for the caller in `stream`. It is not a marker: it returns no credits.
  CUresult Record(Stream& stream, unsigned int flags, std::shared_ptr<Point>* point);
  // The same, in the driver event of an earlier point.
  CUresult RecordAgain(Stream& stream, const std::shared_ptr<Point>& original,
                       std::shared_ptr<Point>* point);
  // A point for an event that work of the stream itself records.
  std::shared_ptr<Point> PointInWork(Stream& stream, const std::shared_ptr<Point>& original);
  // Records a marker for what `stream` has not marked yet.
  CUresult MarkNow(Stream& stream);
  // Takes the stream, all of whose work is marked, out of its context. The work still completes.
  void Drop(Stream& stream);

  // Counts the credit that a command for `stream` took; a marker will return it.
  CUresult CountCredit(Stream& stream);
  // Returns the credit of a command that is skipped because the stream could not be created.
  void GiveBackCredit(Stream& stream);
  // Returns the credits of commands that put nothing into the stream; if earlier work is still
  // outstanding, its marker returns them.
  void ReturnCreditsOf(Stream& stream);
  // Finds completed markers of the stream, releases what they kept, and queues credit notices.
  void Advance(Stream& stream);
  // Releases what completed markers kept; the rest is left to the next Advance.
  void Reclaim(Stream& stream);

  // A stream has nearly as much in its queue as drivers take before a call waits in the driver,
  // with the lock: nothing more may be put into streams. `may_be_full` is callable without the
  // lock.
  bool may_be_full() const { return may_be_full_.load(std::memory_order_relaxed); }
  bool QueueIsFull();

  // An odd number while a thread puts something into a queue of the driver, and another number each
  // time. Callable without the lock: a number that stays the same and is odd tells that the queue
  // is full and that the thread is stuck there, with the lock.
  uint64_t enqueuing() const { return enqueuing_.load(std::memory_order_relaxed); }

 private:
  class Enqueuing {
   public:
    explicit Enqueuing(std::atomic<uint64_t>& number)
        : number_(number), outer_(number.load(std::memory_order_relaxed) % 2 == 0) {
      if (outer_) Next();
    }
    ~Enqueuing() {
      if (outer_) Next();
    }
    Enqueuing(const Enqueuing&) = delete;
    Enqueuing& operator=(const Enqueuing&) = delete;

   private:
    // Only the thread with the lock changes the number.
    void Next() {
      number_.store(number_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }

    std::atomic<uint64_t>& number_;
    const bool outer_;
  };

  CUresult BeforeWait(Stream& stream, WaitPlace* place);
  CUresult AfterWait(Stream& stream, CUresult result);
  CUresult BeforeValueWait(Stream& stream, WaitPlace* place);
  CUresult AfterValueWait(Stream& stream, const WaitPlace& place, CUresult result);
  static void ForgetGone(Context& context);
  CUresult Prepare(Stream& stream);
  CUresult LeaveLast(Stream& next);
  CUresult ApplyFences(Stream& stream);
  CUresult Issued(Stream& stream, Work work, CUresult result);
  CUresult RecordIn(Stream& stream, std::shared_ptr<Point> made, std::shared_ptr<Point>* point);
  CUresult Mark(Stream& stream, bool quiet);
  void Inherit(Stream& stream);
  CUresult MarkBefore(Stream& stream, const WaitPlaces& next);
  void ReturnCredits(Stream& stream, uint64_t credited);

  Executor& executor_;
  const Driver& driver_;
  std::atomic<uint64_t> enqueuing_{0};
  std::atomic<bool> may_be_full_{false};
  std::weak_ptr<Stream> full_;  // the stream with the full queue, and its context
  std::weak_ptr<Context> full_in_;
};

}  // namespace rgpu::exec
