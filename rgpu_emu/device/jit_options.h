// The option arrays of cuModuleLoadDataEx, cuLibraryLoadData and cuLink*.
#pragma once

#include <chrono>
#include <string_view>

#include "gen/cuda_abi.gen.h"

namespace rgpu::emu {

// Remembers where the program wants logs and times; the program owns the arrays.
class JitOptions {
 public:
  JitOptions() = default;
  JitOptions(unsigned count, CUjit_option* options, void** values);

  // CUDA_ERROR_INVALID_VALUE if an array is missing.
  CUresult status() const { return status_; }
  // The value of CU_JIT_MAX_REGISTERS; 0: no limit.
  uint32_t max_registers() const { return max_registers_; }
  // Both append to the log, and set the log's size option to the bytes written so far.
  void Info(std::string_view text);
  void Error(std::string_view text);
  // Stores the milliseconds since this object was created.
  void Time();

 private:
  struct Log {
    char* buffer = nullptr;
    size_t capacity = 0;
    size_t used = 0;
    void** size = nullptr;  // where the number of bytes is stored
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
