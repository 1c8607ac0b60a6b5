// Turns SIGSEGV, SIGBUS, SIGFPE and SIGILL inside guarded code into a return value.
#pragma once

#include <csetjmp>
#include <cstdint>

namespace rgpu::emu {

struct Fault {
  int signal = 0;  // 0: LeaveGuarded ended the code
  uint64_t address = 0;
  int code = 0;  // the code given to LeaveGuarded
};

// Installs the handlers, or installs them again if a library has replaced them. Cheap if they are
// installed. Faults outside guarded code go to the handlers that were installed before ours.
void InstallFaultHandlers();

// When guarded or other code faults at an address for which `may(address)` is true, the access is
// tried again. `may` runs in the signal handler. The access must succeed soon. Installs the
// handlers.
void RetryFaultsIn(bool (*may)(uint64_t address));

// Runs function(argument). Returns true, or false if it faulted or called LeaveGuarded. In the
// latter cases stack frames are dropped without running destructors, so guarded code must own
// nothing. Calls do not nest.
bool RunGuarded(void (*function)(void*), void* argument, Fault* fault);

// Called by guarded code: makes RunGuarded return false with `code`.
[[noreturn]] void LeaveGuarded(int code);

}  // namespace rgpu::emu
