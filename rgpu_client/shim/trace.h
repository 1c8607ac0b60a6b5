// The trace: how often each function was called, with how many bytes, and how long it took; what
// was asked for and is not there; what the driver compiled.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace rgpu::shim {

class Session;

// Empty path: no trace.  A folder: the counters lie in a file there as they are counted, one for
// each process.  Else a file that gets them as text when the process ends.
void StartTrace(const std::string& path);
bool TraceOn();
// In a forked child: the parent's calls are not its own.
void ResetTrace();
void TraceCall(uint32_t index, uint64_t ns);
// Bytes that the function the calling thread is in has moved.
void TraceBytes(uint64_t bytes);
// The function answered CUDA_ERROR_NOT_SUPPORTED.
void TraceRefused(uint32_t index);
// cuGetProcAddress found no function of this name.
void TraceMissing(std::string_view name);
// The driver compiled or loaded a kernel for so long; no name: modules.
void TraceCompiled(std::string_view name, uint64_t ns);
// At exit.  To a file, to which it is appended, so that no process of a program wipes out
// another's: lines of `name<TAB>calls<TAB>bytes<TAB>ns`, then lines that begin with `#` about
// writes and cuts.
void WriteTrace(const Session& session);

}  // namespace rgpu::shim
