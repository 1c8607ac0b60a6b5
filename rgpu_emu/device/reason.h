// Why a call about a kernel failed, in a sentence: a CUresult has no room for it.
#pragma once

#include <string>

namespace rgpu::emu {

// Writes the sentence to the log, once per process, and keeps it for this thread's
// `rgpu_emu_reason`.
void NoteReason(const std::string& sentence);

}  // namespace rgpu::emu
