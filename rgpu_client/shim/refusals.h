// Remembers the features that the program asked for and rgpu does not have. Many programs only test
// for a feature and continue without it, so nothing is printed while the program runs. If the
// program fails soon after a refusal, one sentence on stderr names the refused feature:
//
//   it fails: it exits with a status other than 0, or aborts (an uncaught C++ exception);
//   soon:     it has sent at most kCleanUpCommands commands since, as many as a clean-up takes.
//
// A program that asked for private tables, initialised CUDA and then sent no command has given CUDA
// up. It gets the sentence even if it exits with status 0. NVRTC asks for tables too and does not
// need them, so what it asks for is not remembered.
#pragma once

#include <cstdint>

namespace rgpu::shim {

// A function returned CUDA_ERROR_NOT_SUPPORTED: rgpu has no body for it, or the device lacks the
// feature.
void NoteUnsupported(uint32_t index);
// cuGetProcAddress found no such function.
void NoteMissing(const char* name);
// cuGetExportTable was asked for a private table.
void NotePrivateTables();
// In a forked child: forgets the refusals of its parent.
void ForgetRefusals();

}  // namespace rgpu::shim
