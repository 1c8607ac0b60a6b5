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
  // `thread_main` is what a decoder thread runs; called for a new thread when no idle one is there.
  void Start(std::function<void()> thread_main);

  // Waits for the role.  False: this thread is one too many and ends.
  bool Acquire();

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
  static constexpr int kMaxDecoders = 4200;  // parked calls and some

  // Makes sure that a thread waits in Acquire; mutex held.
  bool HaveSuccessor();
  void Watch();

  std::function<void()> thread_main_;
  std::mutex mutex_;
  std::condition_variable free_changed_;
  bool free_ = true;
  int idle_ = 0;
  int threads_ = 0;

  // When the role's holder entered its call, in ns; 0: it is in none.  Whoever sets it back to 0
  // from the value that a call began with decides about the role: exactly one of LeaveCall, Yield,
  // Watch.
  std::atomic<uint64_t> call_since_{0};
  std::atomic<bool> watcher_asleep_{true};
  std::condition_variable watcher_wakes_;
};

// Starts a detached thread with a small stack.  False: the system allows no more.
bool StartThread(const char* name, std::function<void()> function);

}  // namespace rgpu::exec
