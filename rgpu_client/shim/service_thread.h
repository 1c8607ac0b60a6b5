// The shim's own threads. They are detached, have small stacks unless they run functions of the
// program, and live until the process ends. All
// signals are blocked in them, so that the application's handlers run only on the application's
// threads.
#pragma once

#include <cstddef>

namespace rgpu::shim {

// False: the thread could not be created. `name` is at most 15 characters.
inline constexpr size_t kServiceStackBytes = 256U << 10;
bool StartServiceThread(const char* name, void (*run)(), size_t stack_bytes = kServiceStackBytes);
bool StartServiceThread(const char* name, void (*run)(void*), void* argument,
                        size_t stack_bytes = kServiceStackBytes);

}  // namespace rgpu::shim
