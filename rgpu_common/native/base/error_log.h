// The error log of cuLogs*: what failed calls returned, and sentences that say why. The newest 100
// entries are kept. Shim and emulated device have one each.
#pragma once

#include <string_view>

#include "gen/cuda_abi.gen.h"

namespace rgpu::base {

// Adds the result of a failed call, whose name is `error`, and calls the registered callbacks with
// it. A callback's own calls add entries, but call no callbacks. The names must live for ever. The
// text of the entry is written when somebody reads it, because some programs use calls that fail as
// a question, and ask often.
void LogFailure(const char* function, CUresult result, const char* error);
// Adds a call that `who` does not support, in the same way. `reason` may be null.
void LogRefusal(const char* function, const char* who, const char* reason);
// Adds an entry that says why later calls fail. It calls no callbacks, so locks may be held.
void LogSentence(std::string_view sentence);

// The place behind the newest entry.
CUlogIterator EndOfLog();
CUresult RegisterLogCallback(CUlogsCallback function, void* data, CUlogsCallbackHandle* handle);
CUresult UnregisterLogCallback(CUlogsCallbackHandle handle);

// Both move `*iterator`, if it is not null, behind the newest entry. Without an iterator, all
// entries are written. Writes as many of the newest entries as fit, with a null character behind
// them, and a line that counts the entries that are left out. CUDA_ERROR_INVALID_VALUE: there are
// entries, and none fits.
CUresult DumpLog(CUlogIterator* iterator, char* buffer, size_t* bytes);
// Appends to the file. CUDA_ERROR_INVALID_VALUE: the file cannot be written.
CUresult DumpLog(CUlogIterator* iterator, const char* path);

// In a forked child: begins an empty log. A thread of the parent may have held the old one's lock.
void RenewErrorLog();

}  // namespace rgpu::base
