// The flusher: a thread that sends commands that have been buffered for 50 microseconds. While
// commands keep coming, the flusher looks at the buffer on its own, so a thread that issues
// commands wakes it only once per burst.
#pragma once

namespace rgpu::shim {

class Channel;

class Flusher {
 public:
  // Tells the flusher that `channel` has buffered commands. False: the thread cannot be started,
  // and the caller must flush.
  static bool Arm(Channel* channel);
  // In a forked child, where the thread does not exist.
  static void Forget();

 private:
  static void Run();
  static bool FlushOld(Channel* channel);
  static bool FlushAllOld();
};

}  // namespace rgpu::shim
