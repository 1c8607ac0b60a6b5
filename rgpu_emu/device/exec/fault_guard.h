// Turns SIGSEGV, SIGBUS, SIGFPE and SIGILL inside guarded code into a return value.
#pragma once

#include <csetjmp>
#include <cstdint>

namespace rgpu::emu {

struct Fault {
  int signal = 0;  // 0: ended by FaultGuard::Leave
  uint64_t address = 0;
  int code = 0;  // given to Leave
};

// Installs the handlers, again where a library has put its own before them since; cheap when they
// are there. Faults outside guarded code go to the handlers that were there.
void InstallFaultHandlers();

// Runs function(argument) and returns true, or false when it faulted or called LeaveGuarded. Frames
// between are dropped without destructors: guarded code owns nothing.  Does not nest.
bool RunGuarded(void (*function)(void*), void* argument, Fault* fault);

// From inside guarded code: ends RunGuarded with `code`.
[[noreturn]] void LeaveGuarded(int code);

// True while the calling thread is inside RunGuarded.
bool InGuarded();

}  // namespace rgpu::emu
