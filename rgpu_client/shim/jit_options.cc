#include "rgpu_client/shim/jit_options.h"

#include <string.h>

#include <algorithm>

#include "rgpu_client/shim/say.h"

namespace rgpu::shim {
namespace {

uint32_t Number(void* value) { return static_cast<uint32_t>(reinterpret_cast<uint64_t>(value)); }

void CopyLog(wire::ByteView log, char* to, uint32_t room, void** size_out) {
  uint32_t count = 0;
  if (to != nullptr && room > 0) {
    count = std::min(log.size, room - 1);
    if (count > 0) memcpy(to, log.data, count);
    to[count] = '\0';
  }
  if (size_out != nullptr) *size_out = reinterpret_cast<void*>(uint64_t{count});
}

}  // namespace

CUresult JitOptions::Read(unsigned count, CUjit_option* options, void** values) {
  if (count != 0 && (options == nullptr || values == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    if (const CUresult status = ReadOne(options[i], &values[i]); status != CUDA_SUCCESS) {
      return status;
    }
  }
  return CUDA_SUCCESS;
}

CUresult JitOptions::ReadOne(CUjit_option option, void** value) {
  switch (option) {
    case CU_JIT_WALL_TIME:
      wall_time_out_ = value;
      return CUDA_SUCCESS;
    case CU_JIT_INFO_LOG_BUFFER:
      info_log_ = static_cast<char*>(*value);
      return CUDA_SUCCESS;
    case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
      info_bytes_ = Number(*value);
      info_size_out_ = value;
      return CUDA_SUCCESS;
    case CU_JIT_ERROR_LOG_BUFFER:
      error_log_ = static_cast<char*>(*value);
      return CUDA_SUCCESS;
    case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
      error_bytes_ = Number(*value);
      error_size_out_ = value;
      return CUDA_SUCCESS;
    case CU_JIT_GLOBAL_SYMBOL_NAMES:
    case CU_JIT_GLOBAL_SYMBOL_ADDRESSES:
    case CU_JIT_REFERENCED_KERNEL_NAMES:
    case CU_JIT_REFERENCED_VARIABLE_NAMES:
      return CUDA_ERROR_NOT_SUPPORTED;  // arrays of pointers, which have no meaning in the worker
    default:
      break;
  }
  if (option < 0 || option >= CU_JIT_NUM_OPTIONS) return CUDA_ERROR_INVALID_VALUE;
  Encode(option, reinterpret_cast<uint64_t>(*value));
  return CUDA_SUCCESS;
}

void JitOptions::Encode(CUjit_option option, uint64_t value) {
  wire::Writer writer(&encoded_);
  writer.Put(static_cast<int32_t>(option));
  writer.Put(value);
}

void JitOptions::WriteBack(wire::ByteView info_log, wire::ByteView error_log, uint64_t ns) const {
  CopyLog(info_log, info_log_, info_bytes_, info_size_out_);
  CopyLog(error_log, error_log_, error_bytes_, error_size_out_);
  if (wall_time_out_ == nullptr) return;
  const float milliseconds = static_cast<float>(ns) / 1e6F;
  uint32_t bits = 0;
  memcpy(&bits, &milliseconds, sizeof(bits));
  *wall_time_out_ = reinterpret_cast<void*>(uint64_t{bits});
}

void JitOptions::SayWhy(wire::ByteView error_log) const {
  if (error_log_ != nullptr || error_log.size == 0) return;
  Say("the server did not load an image: %.*s", static_cast<int>(error_log.size),
      reinterpret_cast<const char*>(error_log.data));
}

}  // namespace rgpu::shim
