// Calls cuLogs*: the device has a log of its own, with every failed call.
#include "gen/emu_calls.gen.h"
#include "rgpu_common/native/base/error_log.h"

namespace rgpu::emu {

CUresult cuLogsRegisterCallback(CUlogsCallback callbackFunc, void* userData,
                                CUlogsCallbackHandle* callback_out) {
  return base::RegisterLogCallback(callbackFunc, userData, callback_out);
}

CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle callback) {
  return base::UnregisterLogCallback(callback);
}

CUresult cuLogsCurrent(CUlogIterator* iterator_out, unsigned int) {
  *iterator_out = base::EndOfLog();
  return CUDA_SUCCESS;
}

CUresult cuLogsDumpToFile(CUlogIterator* iterator, const char* pathToFile, unsigned int) {
  return base::DumpLog(iterator, pathToFile);
}

CUresult cuLogsDumpToMemory(CUlogIterator* iterator, char* buffer, size_t* size, unsigned int) {
  return base::DumpLog(iterator, buffer, size);
}

}  // namespace rgpu::emu
