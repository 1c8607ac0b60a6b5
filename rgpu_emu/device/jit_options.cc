#include "rgpu_emu/device/jit_options.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace rgpu::emu {

JitOptions::JitOptions(unsigned count, CUjit_option* options, void** values) {
  if (count == 0) return;
  if (options == nullptr || values == nullptr) {
    status_ = CUDA_ERROR_INVALID_VALUE;
    return;
  }
  for (unsigned i = 0; i < count; ++i) {
    // The option's value is stored in the pointer itself.
    const auto number = static_cast<uint32_t>(reinterpret_cast<uint64_t>(values[i]));
    switch (options[i]) {
      case CU_JIT_MAX_REGISTERS:
        max_registers_ = number;
        break;
      case CU_JIT_WALL_TIME:
        wall_time_ = &values[i];
        break;
      case CU_JIT_INFO_LOG_BUFFER:
        info_.buffer = static_cast<char*>(values[i]);
        break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        info_.capacity = number;
        info_.size = &values[i];
        break;
      case CU_JIT_ERROR_LOG_BUFFER:
        error_.buffer = static_cast<char*>(values[i]);
        break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        error_.capacity = number;
        error_.size = &values[i];
        break;
      default:
        break;  // optimisation, targets, debug information: this device compiles in one way
    }
  }
  for (Log* log : {&info_, &error_}) {
    if (log->buffer != nullptr && log->capacity != 0) log->buffer[0] = '\0';
  }
  info_.Append("");
  error_.Append("");
}

void JitOptions::Log::Append(std::string_view text) {
  if (buffer != nullptr && capacity > used + 1) {
    const size_t count = std::min(text.size(), capacity - used - 1);
    std::memcpy(buffer + used, text.data(), count);
    used += count;
    buffer[used] = '\0';
  }
  if (size != nullptr) *size = reinterpret_cast<void*>(used == 0 ? 0 : used + 1);
}

void JitOptions::Info(std::string_view text) { info_.Append(text); }
void JitOptions::Error(std::string_view text) { error_.Append(text); }

void JitOptions::Time() {
  if (wall_time_ == nullptr) return;
  const std::chrono::duration<float, std::milli> spent = std::chrono::steady_clock::now() - start_;
  const float milliseconds = spent.count();
  uint64_t raw = 0;
  std::memcpy(&raw, &milliseconds, sizeof(milliseconds));
  *wall_time_ = reinterpret_cast<void*>(raw);
}

}  // namespace rgpu::emu
