// The keeper: a thread for each session that looks after memory credit (tables/memory_credit.h)
// that the program does not use. It reads the channel, so that the worker can ask for the credit
// although no thread of the program calls, and gives back credit that has not been used for a
// while.
#pragma once

namespace rgpu::shim {

class Session;

class CreditKeeper {
 public:
  // The session has credit, or is about to. False: the thread cannot be started, so the session
  // must not have credit.
  static bool Need(Session* session);
  // In a forked child, where the threads do not exist.
  static void Forget();

 private:
  static void Run(void* place);
};

}  // namespace rgpu::shim
