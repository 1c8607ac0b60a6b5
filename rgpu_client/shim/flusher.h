// The flusher: a thread that sends what has been buffered for 50 microseconds.  While commands come
// it looks by itself, so the issuing thread pays for waking it only once per burst.
#pragma once

namespace rgpu::shim {

class Channel;

class Flusher {
 public:
  // Something is buffered in `channel`.  False: there is no thread to send it.
  static bool Arm(Channel* channel);
  // In a forked child: the thread is gone.
  static void Forget();

 private:
  static void Run();
  static bool FlushOld(Channel* channel);
};

}  // namespace rgpu::shim
