// The shim's own threads. They are detached, have small stacks and live until the process ends. All
// signals are blocked in them, so that the application's handlers run only on the application's
// threads.
#pragma once

namespace rgpu::shim {

// False: the thread could not be created. `name` is at most 15 characters.
bool StartServiceThread(const char* name, void (*run)());
bool StartServiceThread(const char* name, void (*run)(void*), void* argument);

}  // namespace rgpu::shim
