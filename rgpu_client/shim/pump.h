// The pumps: a thread for each channel that reads it while no other thread does and bytes of an
// asynchronous copy are outstanding. The worker then sends them, or asks for them, at any time. The
// first such copy starts the pump of its channel.
#pragma once

namespace rgpu::shim {

class Channel;

class Pump {
 public:
  // Tells the pump that a delivery or a pull is outstanding in `channel`.
  static void Need(Channel* channel);
  // Ends the pump's wait, so that it checks its channel again.
  static void Wake(const Channel& channel);
  // In a forked child, where the threads do not exist.
  static void Forget();

 private:
  static void Run(void* place);
};

}  // namespace rgpu::shim
