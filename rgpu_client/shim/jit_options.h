// Options of the compiler and linker: what travels, and what is written back to the program.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gen/cuda_abi.gen.h"
#include "rgpu_common/native/wire/codec.h"

namespace rgpu::shim {

class JitOptions {
 public:
  // CUDA_ERROR_INVALID_VALUE: arrays are missing, or an option is unknown.
  CUresult Read(unsigned count, CUjit_option* options, void** values);

  wire::ByteView encoded() const { return wire::Bytes(encoded_.data(), encoded_.size()); }
  // What the server may send of each log: a frame holds both.
  static constexpr uint32_t kMaxLogBytes = 24U << 10;
  uint32_t info_bytes() const { return std::min(info_bytes_, kMaxLogBytes); }
  // At least enough for SayWhy.
  uint32_t error_bytes() const { return std::clamp(error_bytes_, kReasonBytes, kMaxLogBytes); }

  // Copies the logs into the program's buffers and their lengths, and the time taken, into the
  // option values, which are both input and output.
  void WriteBack(wire::ByteView info_log, wire::ByteView error_log, uint64_t ns) const;
  // A program that gave no buffer for the error log would never learn why its image was refused:
  // the log goes to stderr then.
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
