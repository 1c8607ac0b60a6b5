// The pump: a thread that reads the channel while no other thread does and bytes of an asynchronous
// copy are outstanding. The worker then sends them, or asks for them, at any time. The first such
// copy starts the pump.
#pragma once

namespace rgpu::shim {

class Channel;

class Pump {
 public:
  // Tells the pump that a delivery or a pull is outstanding in `channel`.
  static void Need(Channel* channel);
  // Ends the pump's wait, so that it checks its channel again.
  static void Wake();
  // In a forked child, where the thread does not exist.
  static void Forget();

 private:
  static void ReadOne(Channel* channel, int wait_ms);
  static void Run();
};

}  // namespace rgpu::shim
