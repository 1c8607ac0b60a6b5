#include "rgpu_client/shim/host_functions.h"

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "rgpu_client/shim/paged/active.h"
#include "rgpu_client/shim/runtime.h"
#include "rgpu_client/shim/say.h"
#include "rgpu_client/shim/service_thread.h"

namespace rgpu::shim {
namespace {

// The stack of a thread that the program would start itself.
constexpr size_t kStackBytes = size_t{8} << 20;

struct Due {
  ControlLane* control;
  uint64_t callback;
  HostCall call;
  CUresult status;
};

struct Queue {
  std::mutex mutex;
  std::condition_variable added;
  std::deque<Due> due;
  bool started = false;
  std::atomic<bool> ended = false;  // no other one begins
};

// A pointer, because a forked child needs a new queue: a thread that exists only in the parent may
// hold the lock of the old one.
Queue* g_queue = new Queue;

thread_local bool t_in_host_function = false;

void ForEachPaged(void (PagedMemory::*act)()) {
  for (Session* const session : LiveSessions()) (session->paged().*act)();
}

// Waits for the next one.
[[gnu::noinline]] const Due* Next(Queue& queue) {
  std::unique_lock lock(queue.mutex);
  queue.added.wait(lock, [&] { return !queue.ended && !queue.due.empty(); });
  auto due = std::make_unique<const Due>(std::move(queue.due.front()));
  queue.due.pop_front();
  return due.release();
}

[[gnu::noinline]] void Prepare() {
  if (PagedHas(kTrackedRanges | kMirrors)) ForEachPaged(&PagedMemory::BeforeHostFunction);
}

[[gnu::noinline]] void Finish(const Due* passed) {
  const std::unique_ptr<const Due> due(passed);
  if (PagedHas(kTrackedRanges | kMirrors)) ForEachPaged(&PagedMemory::AfterHostFunction);
  if (due->callback != 0) due->control->SendCallbackDone(due->callback);
}

// A host function may end its thread: Python's does, when the interpreter ends meanwhile. That
// unwinds this function and its caller, and the process is aborted if one of them has something to
// destroy. So neither has: what has is in functions that are never inlined.
void RunAll() {
  // EntryGuard looks for a host function only in threads in which cancellation is disabled.
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
  t_in_host_function = true;
  for (;;) {
    const Due* const due = Next(*g_queue);
    const HostCall& call = due->call;
    Prepare();
    if (call.function != nullptr) {
      call.function(call.data);
    } else {
      call.callback(call.stream, due->status, call.data);
    }
    Finish(due);
  }
}

}  // namespace

void HostFunctions::Run(ControlLane* control, uint64_t callback, const HostCall& call,
                        CUresult status) {
  Queue& queue = *g_queue;
  const std::lock_guard lock(queue.mutex);
  queue.due.push_back({control, callback, call, status});
  if (!queue.started) queue.started = StartServiceThread("rgpu-callback", &RunAll, kStackBytes);
  if (!queue.started) {
    Say("the system gives no thread for the program's host functions, so their streams stand "
        "still");
  }
  queue.added.notify_one();
}

void HostFunctions::End() { g_queue->ended = true; }

bool HostFunctions::InOne() { return t_in_host_function; }

void HostFunctions::Forget() { g_queue = new Queue; }

}  // namespace rgpu::shim
