// The trace: how often each function was called, with how many bytes, and how long it took.
#pragma once

#include <cstdint>
#include <string>

namespace rgpu::shim {

class Session;

// Empty path: no trace.
void StartTrace(const std::string& path);
bool TraceOn();
// In a forked child: the parent's calls are not its own.
void ResetTrace();
void TraceCall(uint32_t index, uint64_t ns);
// Bytes that the function the calling thread is in has moved.
void TraceBytes(uint64_t bytes);
// At exit, appended to the file, so that no process of a program wipes out another's: lines of
// `name<TAB>calls<TAB>bytes<TAB>ns`, then lines that begin with `#` about writes
// and cuts.
void WriteTrace(const Session& session);

}  // namespace rgpu::shim
