// Quantities as users write them: the C++ twin of rgpu_common/units.py.
#pragma once

#include <cstdint>
#include <string_view>

namespace rgpu::shim {

// A size as asked for: bytes, or millionths of a device that only the server knows; both 0: none.
struct MemorySize {
  uint64_t bytes = 0;
  uint32_t ppm = 0;
};

// "2GiB", "512MiB", "1.5GB" (powers of ten), "1000000", "8vmem" (units of 256 MiB), "25%".
// False: not a size above 0.
bool ParseMemory(std::string_view text, MemorySize* size);
// "0.4", "40%", "40vcore": 400000.  False: not in (0, 1], or not a whole vcore.
bool ParseShare(std::string_view text, uint32_t* ppm);
// Decimal digits alone, in [low, high].
bool ParseWhole(std::string_view text, uint64_t low, uint64_t high, uint64_t* number);
// "fixed", "burst", "best-effort", "none": the number that travels.
bool ParsePolicy(std::string_view text, uint64_t* policy);

}  // namespace rgpu::shim
