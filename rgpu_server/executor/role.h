// Which thread decodes. One thread at a time has the decoder's role. It gives the role up before it
// waits, and loses the role if it is stuck in a call for a millisecond. It may then finish its call
// beside the next decoder: the client waits for that call's reply, so no later command of that
// caller exists.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

namespace rgpu::exec {

class Role {
 public:
  // How many calls of a session may wait at the same time, each in a thread of its own. One more is
  // refused, because the thread that reads commands must not wait.
  static constexpr int kMaxWaiting = 1024;

  // `thread_main` is what a decoder thread runs. A new thread is started when none is idle.
  void Start(std::function<void()> thread_main);

  // Waits for the role. Returns false if enough threads are idle: the caller then ends.
  bool Acquire();

  // Whether a call that may wait may begin.
  bool MayWait() const { return threads_.load(std::memory_order_relaxed) <= kMaxWaiting; }

  // Brackets a call's handler. In between the role may be given up or taken away.
  void EnterCall();
  // Returns false if another thread decodes now. The caller then sends its reply and calls Acquire.
  bool LeaveCall();
  // Within a call: returns true if this thread still has the role.
  bool Held() const;
  // Within a call: gives up the role, because what follows may wait.
  void Yield();

 private:
  static constexpr int kIdleThreads = 4;
  static constexpr int kMaxDecoders = kMaxWaiting + 16;

  // Makes sure that a thread waits in Acquire; the mutex is held.
  bool HaveSuccessor();
  void Watch();

  std::function<void()> thread_main_;
  std::mutex mutex_;
  std::condition_variable free_changed_;
  bool free_ = true;
  int idle_ = 0;
  std::atomic<int> threads_{0};  // changed with the mutex

  // When the role's holder entered its call, in ns; 0: it is in no call. LeaveCall, Yield and Watch
  // each try to set it back to 0 from the value that the call began with. Exactly one of them
  // succeeds, and that one decides who has the role.
  std::atomic<uint64_t> call_since_{0};
  std::atomic<bool> watcher_asleep_{true};
  std::condition_variable watcher_wakes_;
};

// Starts a detached thread with a small stack. Returns false if the system allows no more threads.
bool StartThread(const char* name, std::function<void()> function);
// The same for a thread that the session needs: the process ends if the system refuses it, and the
// client is told that its server is gone.
void NeedThread(const char* name, std::function<void()> function);

}  // namespace rgpu::exec
