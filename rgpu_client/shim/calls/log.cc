// The error log, which this process keeps. It has every failed call, and the sentences that rgpu
// prints.
#include "gen/shim_calls.gen.h"
#include "rgpu_common/native/base/error_log.h"

namespace rgpu::shim {

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

}  // namespace rgpu::shim
