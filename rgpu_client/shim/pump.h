// The pump: a thread that reads while nobody waits but the worker may speak unasked (bytes of an
// asynchronous copy to the host, requests for bytes).  Started by the first command of that kind.
#pragma once

namespace rgpu::shim {

class Channel;

class Pump {
 public:
  // A delivery or a pull is outstanding in `channel`.
  static void Need(Channel* channel);
  // Ends its wait, so that it looks again.
  static void Wake();
  // In a forked child: the thread is gone.
  static void Forget();

 private:
  static void Run();
};

}  // namespace rgpu::shim
