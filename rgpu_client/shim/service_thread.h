// Threads of the shim's own: detached, small, there until the process ends, and with every signal
// blocked so that handlers of the application run on the application's threads only.
#pragma once

namespace rgpu::shim {

// False: no thread could be made (limits).  `name` is at most 15 characters.
bool StartServiceThread(const char* name, void (*run)());
bool StartServiceThread(const char* name, void (*run)(void*), void* argument);

// True on such a thread.
bool OnServiceThread();

}  // namespace rgpu::shim
