// Options of the compiler and the linker: encodes those that travel, and writes results back to the
// program.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gen/cuda_abi.gen.h"
#include "rgpu_common/native/wire/codec.h"

namespace rgpu::shim {

class JitOptions {
 public:
  // Reads the program's options. CUDA_ERROR_INVALID_VALUE: an array is missing, or an option is
  // unknown.
  CUresult Read(unsigned count, CUjit_option* options, void** values);

  wire::ByteView encoded() const { return wire::Bytes(encoded_.data(), encoded_.size()); }
  // The most bytes that the server may send of each log. One frame must hold both logs.
  static constexpr uint32_t kMaxLogBytes = 24U << 10;
  uint32_t info_bytes() const { return std::min(info_bytes_, kMaxLogBytes); }
  // At least kReasonBytes, so that SayWhy has a text also for a program without a log buffer.
  uint32_t error_bytes() const { return std::clamp(error_bytes_, kReasonBytes, kMaxLogBytes); }

  // Copies the logs into the program's buffers. Writes the lengths and the time taken into the
  // option values, which CUDA defines as both input and output.
  void WriteBack(wire::ByteView info_log, wire::ByteView error_log, uint64_t ns) const;
  // Prints the error log to stderr if the program gave no buffer for it. Otherwise the program
  // would never learn why its image was refused.
  void SayWhy(wire::ByteView error_log) const;

 private:
  static constexpr uint32_t kReasonBytes = 4096;

  CUresult ReadOne(CUjit_option option, void** value);
  void Encode(CUjit_option option, uint64_t value);

  std::vector<uint8_t> encoded_;
  char* info_log_ = nullptr;
  char* error_log_ = nullptr;
  uint32_t info_bytes_ = 0;
  uint32_t error_bytes_ = 0;
  void** info_size_out_ = nullptr;
  void** error_size_out_ = nullptr;
  void** wall_time_out_ = nullptr;
};

}  // namespace rgpu::shim
