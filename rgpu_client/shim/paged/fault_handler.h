// Catches the program's touches of protected pages (SIGSEGV). The handler only hands the address to
// a thread of ours, the pager, and sleeps until the pager has answered; so it takes no lock and
// needs little stack. Faults elsewhere go to the handler that the program had set, or end the
// program as before.
#pragma once

#include <cstdint>

namespace rgpu::shim {

class FaultHandler {
 public:
  // Faults in [base, base + bytes) belong to PagedMemory from now on. False: the handler or its
  // thread cannot be set up.
  static bool Watch(uint64_t base, uint64_t bytes);
  // Sets the handler again if the program has set one of its own since; ours then calls that one.
  static void Renew();
  // In a forked child: the parent's memory and thread do not exist here.
  static void Forget();
};

}  // namespace rgpu::shim
