// What the program asked for and rgpu does not have.  Many programs only look whether something is
// there and go on without it, so nothing is said as long as the program goes on.  When it fails
// soon afterwards, one sentence names what it asked for last:
//
//   it fails: it exits with another status than 0, or aborts (an uncaught C++ exception);
//   soon:     it has sent few commands since (kCleanUpCommands), as cleaning up takes.
//
// A program that asked for private tables, initialised CUDA and then sent nothing at all has given
// CUDA up; it gets the sentence also when it exits with 0.
#pragma once

#include <cstdint>

namespace rgpu::shim {

// A function without a body, or one that the device does not support, answered so.
void NoteUnsupported(uint32_t index);
// cuGetProcAddress found no such function.
void NoteMissing(const char* name);
// cuGetExportTable was asked for a private table.
void NotePrivateTables();
// In a forked child: what its parent asked for is not its own.
void ForgetRefusals();

}  // namespace rgpu::shim
