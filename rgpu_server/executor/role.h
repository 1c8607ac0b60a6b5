// Who decodes.  One thread at a time has the decoder's role; it gives it up before it waits, and it
// is taken from a thread that is stuck in a call for some milliseconds.  What that thread then
// still has to do is sound beside the next one: its caller waits, so nothing stands behind it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

namespace rgpu::exec {

class Role {
 public:
  // Calls of a session that wait at the same time, each in a thread of its own.  One more is
  // refused: the thread that reads commands must not wait.
  static constexpr int kMaxWaiting = 1024;

  // `thread_main` is what a decoder thread runs; called for a new thread when no idle one is there.
  void Start(std::function<void()> thread_main);

  // Waits for the role.  False: this thread is one too many and ends.
  bool Acquire();

  // Whether a call may begin that waits.
  bool MayWait() const { return threads_.load(std::memory_order_relaxed) <= kMaxWaiting; }

  // Around a call's handler: between them the role may be given up or taken away.
  void EnterCall();
  // False: another thread decodes now; this one finishes its reply and goes back to Acquire.
  bool LeaveCall();
  // Within a call: whether this thread still has the role.
  bool Held() const;
  // Within a call: gives the role up, because what follows may wait.
  void Yield();

 private:
  static constexpr int kIdleThreads = 4;
  static constexpr int kMaxDecoders = kMaxWaiting + 16;

  // Makes sure that a thread waits in Acquire; mutex held.
  bool HaveSuccessor();
  void Watch();

  std::function<void()> thread_main_;
  std::mutex mutex_;
  std::condition_variable free_changed_;
  bool free_ = true;
  int idle_ = 0;
  std::atomic<int> threads_{0};  // changed with the mutex

  // When the role's holder entered its call, in ns; 0: it is in none.  Whoever sets it back to 0
  // from the value that a call began with decides about the role: exactly one of LeaveCall, Yield,
  // Watch.
  std::atomic<uint64_t> call_since_{0};
  std::atomic<bool> watcher_asleep_{true};
  std::condition_variable watcher_wakes_;
};

// Starts a detached thread with a small stack.  False: the system allows no more.
bool StartThread(const char* name, std::function<void()> function);
// The same for a thread without which the session cannot go on: the process ends if the system
// allows none, and the client hears that its server is gone.
void NeedThread(const char* name, std::function<void()> function);

}  // namespace rgpu::exec
