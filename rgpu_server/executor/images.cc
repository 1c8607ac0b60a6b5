#include "rgpu_server/executor/images.h"

#include <algorithm>
#include <cstring>

namespace rgpu::exec {

namespace {

constexpr size_t kOptionBytes = 4 + 8;
constexpr size_t kMaxOptions = 64;

// Options whose value is a number. The values of the others are addresses in the client's memory.
bool IsNumber(int32_t option) {
  switch (option) {
    case CU_JIT_MAX_REGISTERS:
    case CU_JIT_THREADS_PER_BLOCK:
    case CU_JIT_OPTIMIZATION_LEVEL:
    case CU_JIT_TARGET_FROM_CUCONTEXT:
    case CU_JIT_TARGET:
    case CU_JIT_FALLBACK_STRATEGY:
    case CU_JIT_GENERATE_DEBUG_INFO:
    case CU_JIT_LOG_VERBOSE:
    case CU_JIT_GENERATE_LINE_INFO:
    case CU_JIT_CACHE_MODE:
    case CU_JIT_LTO:
    case CU_JIT_FTZ:
    case CU_JIT_PREC_DIV:
    case CU_JIT_PREC_SQRT:
    case CU_JIT_FMA:
    case CU_JIT_POSITION_INDEPENDENT_CODE:
    case CU_JIT_MIN_CTA_PER_SM:
    case CU_JIT_MAX_THREADS_PER_BLOCK:
    case CU_JIT_OVERRIDE_DIRECTIVE_VALUES:
      return true;
    default:
      return false;
  }
}

}  // namespace

void JitOptions::Add(CUjit_option option, uint64_t value) {
  ids_.push_back(option);
  values_.push_back(reinterpret_cast<void*>(value));
}

void JitOptions::AddLog(CUjit_option buffer, CUjit_option size, uint32_t bytes,
                        std::vector<char>* log, size_t* size_index) {
  if (bytes == 0) return;
  log->assign(std::min(bytes, kMaxLogBytes), 0);
  Add(buffer, reinterpret_cast<uint64_t>(log->data()));
  *size_index = values_.size();
  Add(size, log->size());
}

CUresult JitOptions::Read(wire::ByteView options, uint32_t info_log_bytes,
                          uint32_t error_log_bytes) {
  const size_t count = options.size / kOptionBytes;
  if (options.size % kOptionBytes != 0 || count > kMaxOptions) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    int32_t id = 0;
    uint64_t value = 0;
    std::memcpy(&id, options.data + i * kOptionBytes, sizeof id);
    std::memcpy(&value, options.data + i * kOptionBytes + 4, sizeof value);
    if (!IsNumber(id)) return CUDA_ERROR_NOT_SUPPORTED;
    Add(static_cast<CUjit_option>(id), value);
  }
  AddLog(CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, info_log_bytes, &info_log_,
         &info_size_);
  AddLog(CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, error_log_bytes, &error_log_,
         &error_size_);
  return CUDA_SUCCESS;
}

// The driver replaces the buffer's size by the number of bytes written. The text ends at its zero
// byte.
wire::ByteView JitOptions::Log(const std::vector<char>& log, size_t size_index) const {
  if (log.empty()) return {};
  const size_t filled = std::min(reinterpret_cast<size_t>(values_[size_index]), log.size());
  return wire::Bytes(log.data(), strnlen(log.data(), filled));
}

}  // namespace rgpu::exec
