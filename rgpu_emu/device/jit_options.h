// The option arrays of cuModuleLoadDataEx, cuLibraryLoadData and cuLink*.
#pragma once

#include <chrono>
#include <string_view>

#include "gen/cuda_abi.gen.h"

namespace rgpu::emu {

// Remembers where the program wants logs and times; the arrays stay the program's.
class JitOptions {
 public:
  JitOptions() = default;
  JitOptions(unsigned count, CUjit_option* options, void** values);

  // CUDA_ERROR_INVALID_VALUE when arrays are missing.
  CUresult status() const { return status_; }
  // CU_JIT_MAX_REGISTERS; 0: no bound.
  uint32_t max_registers() const { return max_registers_; }
  // Both append to what was written before and set the size option to the bytes written.
  void Info(std::string_view text);
  void Error(std::string_view text);
  // Milliseconds since the options were made.
  void Time();

 private:
  struct Log {
    char* buffer = nullptr;
    size_t capacity = 0;
    size_t used = 0;
    void** size = nullptr;  // where the option's value is written back
    void Append(std::string_view text);
  };
  CUresult status_ = CUDA_SUCCESS;
  Log info_;
  Log error_;
  void** wall_time_ = nullptr;
  uint32_t max_registers_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace rgpu::emu
