// Explains in a sentence why a call about a kernel failed, because a CUresult cannot.
#pragma once

#include <string>

namespace rgpu::emu {

// Logs the sentence, each once per process, and keeps it for this thread's `rgpu_emu_reason`.
void NoteReason(const std::string& sentence);

// Logs why a kernel failed, and keeps the first such sentence of the process for `rgpu_emu_fault`.
// Called before anybody can see that the context has failed.
void NoteFault(const std::string& sentence);

}  // namespace rgpu::emu
