// printf in kernels: the format string and the packed arguments lie in device memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rgpu::emu {

// Reads device memory for a kernel. Every method may leave by
// LeaveGuarded(CUDA_ERROR_ILLEGAL_ADDRESS) or by a fault, so callers must hold no lock and own
// nothing.
class DeviceReader {
 public:
  DeviceReader(uint64_t band_base, uint64_t band_bytes) : base_(band_base), bytes_(band_bytes) {}
  uint8_t Byte(uint64_t address) const;
  void Copy(uint64_t address, void* out, size_t bytes) const;
  // Copies at most room - 1 bytes of a string and appends a zero byte; returns its length.
  size_t String(uint64_t address, char* out, size_t room) const;

 private:
  uint64_t base_;
  uint64_t bytes_;
};

struct FormattedText {
  size_t bytes;       // written to `out`; at most `room`
  int32_t arguments;  // conversions that took an argument
};

// `arguments`: the address of the arguments, each aligned to its size (4 or 8).
FormattedText FormatDevice(const DeviceReader& reader, const char* format, uint64_t arguments,
                           char* out, size_t room);

}  // namespace rgpu::emu
