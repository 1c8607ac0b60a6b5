// The trace. It counts the calls, bytes and time of each function, the functions that the program
// asked for and rgpu lacks, and the kernels that the driver compiled.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace rgpu::shim {

// Starts the trace. Empty path: no trace. If `path` is a folder, each process counts in a mapped
// file there. Otherwise `path` is a file, to which the counters are appended as text when the
// process ends.
void StartTrace(const std::string& path);
bool TraceOn();
// In a forked child: starts with counters of 0, because the calls so far were the parent's.
void ResetTrace();
void TraceCall(uint32_t index, uint64_t ns);
// Adds bytes to the function that the calling thread is in.
void TraceBytes(uint64_t bytes);
// The function answered CUDA_ERROR_NOT_SUPPORTED.
void TraceRefused(uint32_t index);
// cuGetProcAddress found no function of this name.
void TraceMissing(std::string_view name);
// The driver spent `ns` compiling or loading a kernel. An empty name means modules.
void TraceCompiled(std::string_view name, uint64_t ns);
// The session has failed, and every later call with it. Only the first sentence is kept.
void TraceFailure(std::string_view sentence);
// Called at exit. Writes lines of `name<TAB>calls<TAB>bytes<TAB>ns`, then lines that begin with `#`
// about writes and cuts. The lines are appended, so that the processes of one program do not
// overwrite each other's. Does nothing in a process without a session.
void WriteTrace();

}  // namespace rgpu::shim
