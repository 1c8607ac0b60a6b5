// Explains in a sentence why a call about a kernel failed, because a CUresult cannot.
#pragma once

#include <string>

namespace rgpu::emu {

// Logs the sentence, each once per process, and keeps it for this thread's `rgpu_emu_reason`.
void NoteReason(const std::string& sentence);

}  // namespace rgpu::emu
