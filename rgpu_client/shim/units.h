// Parses quantities as users write them. rgpu_common/units.py accepts the same forms.
#pragma once

#include <cstdint>
#include <string_view>

namespace rgpu::shim {

// A memory size that a user asked for: in bytes, or in millionths of the device's memory, whose
// size only the server knows. Both 0: none was asked for.
struct MemorySize {
  uint64_t bytes = 0;
  uint32_t ppm = 0;
};

// Parses "2GiB", "512Mi", "2g" (Docker's, as 2GiB), "1.5GB", "1500M" (Kubernetes', powers of ten),
// "1000000", "256B", "8vmem" (units of 256 MiB), "25%". False: `text` is not a size above 0, or a
// bare number that is too small to mean bytes.
bool ParseMemory(std::string_view text, MemorySize* size);
// Parses "0.4", "40%" or "40vcore" to 400000. False: not in (0, 1], or not a whole number of
// vcores.
bool ParseShare(std::string_view text, uint32_t* ppm);
// Parses a whole number in [low, high], written in decimal digits only.
bool ParseWhole(std::string_view text, uint64_t low, uint64_t high, uint64_t* number);
// Parses "fixed", "burst", "best-effort" or "none" to its number on the wire.
bool ParsePolicy(std::string_view text, uint64_t* policy);

}  // namespace rgpu::shim
