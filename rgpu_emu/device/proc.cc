// Calls that look up names: entry points and errors.
#include "gen/emu_calls.gen.h"
#include "gen/errors.gen.h"
#include "rgpu_common/native/base/proc_flags.h"
#include "rgpu_emu/device/device.h"

namespace rgpu::emu {

// The null pointer and the status say that there is no such function.
CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* symbolStatus) {
  if (symbol == nullptr || pfn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!base::AreProcFlags(flags)) return CUDA_ERROR_INVALID_VALUE;
  int status = CU_GET_PROC_ADDRESS_SUCCESS;
  *pfn = const_cast<void*>(FindProc(symbol, cudaVersion, flags, &status));
  if (symbolStatus != nullptr) *symbolStatus = static_cast<CUdriverProcAddressQueryResult>(status);
  return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags) {
  const CUresult result = emu::cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, nullptr);
  return result == CUDA_SUCCESS && *pfn == nullptr ? CUDA_ERROR_NOT_FOUND : result;
}

CUresult cuGetErrorName(CUresult error, const char** pStr) {
  *pStr = ErrorName(error);
  return *pStr == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** pStr) {
  *pStr = ErrorString(error);
  return *pStr == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuProfilerStart() { return CUDA_SUCCESS; }
CUresult cuProfilerStop() { return CUDA_SUCCESS; }

}  // namespace rgpu::emu
