// cuInit, the version, names of errors, entry points and the profiler's start and stop.
#include <algorithm>

#include "gen/errors.gen.h"
#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/here.h"
#include "rgpu_client/shim/refusals.h"
#include "rgpu_client/shim/version.h"
#include "rgpu_common/native/base/proc_flags.h"

namespace rgpu::shim {
namespace {

CUresult Text(const char* text, const char** out) {
  *out = text;
  return text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// False if the server lacks a command that the function sends.
bool ServerKnows(CallId call) {
  for (const Session* session : LiveSessions()) {
    for (const Opcode opcode : CallSends(static_cast<uint32_t>(call))) {
      if (session->channel().Lacks(opcode)) return false;
    }
  }
  return true;
}

CUresult FindEntry(const char* symbol, void** pfn, int version, cuuint64_t flags, int* found) {
  if (symbol == nullptr || pfn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!base::AreProcFlags(flags)) return CUDA_ERROR_INVALID_VALUE;
  CallId call{};
  *pfn = const_cast<void*>(FindProc(symbol, version, flags, found, &call));
  if (*pfn != nullptr && !ServerKnows(call)) {
    *pfn = nullptr;
    *found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  if (*pfn != nullptr) return CUDA_SUCCESS;
  NoteMissing(symbol);
  return CUDA_ERROR_NOT_FOUND;
}

}  // namespace

CUresult cuInit(unsigned int) { return Initialize(); }

CUresult cuDriverGetVersion(int* driverVersion) {
  *driverVersion = kDriverVersion;
  // A toolkit generates PTX for this version, so it must not be higher than the version of the
  // server's driver. If the server cannot be reached, the later cuInit returns the error.
  if (CurrentSession() == nullptr && ServerConfigured()) OpenSession();
  for (const Session* session : LiveSessions()) {
    *driverVersion = std::min(*driverVersion, session->driver_version());
  }
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** pStr) {
  return Text(ErrorString(error), pStr);
}

CUresult cuGetErrorName(CUresult error, const char** pStr) { return Text(ErrorName(error), pStr); }

CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* symbolStatus) {
  int found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  const CUresult status = FindEntry(symbol, pfn, cudaVersion, flags, &found);
  if (symbolStatus != nullptr && status != CUDA_ERROR_INVALID_VALUE) {
    *symbolStatus = static_cast<CUdriverProcAddressQueryResult>(found);
  }
  // As NVIDIA's driver: the null pointer and the status say that there is no such function.
  return status == CUDA_ERROR_NOT_FOUND ? CUDA_SUCCESS : status;
}

CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags) {
  int found = 0;
  return FindEntry(symbol, pfn, cudaVersion, flags, &found);
}

CUresult cuGetExportTable(const void** ppExportTable, const CUuuid*) {
  if (ppExportTable != nullptr) *ppExportTable = nullptr;
  NotePrivateTables();
  return CUDA_ERROR_NOT_FOUND;
}

CUresult cuProfilerStart() { return CUDA_SUCCESS; }
CUresult cuProfilerStop() { return CUDA_SUCCESS; }

}  // namespace rgpu::shim
