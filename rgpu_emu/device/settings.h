// Settings from the environment, read once by cuInit (the table is in rgpu_emu/DESIGN.md).
#pragma once

#include <cstdint>
#include <string>

namespace rgpu::emu {

struct Settings {
  uint64_t band_base = 0x200000000000;
  uint64_t band_bytes = 0x4000000000;
  uint64_t memory_bytes = uint64_t{8} << 30;
  uint64_t ordinal = 0;  // number of the device on its server
  bool hostile = false;
  uint64_t hostile_seed = 1;
};

// Returns false if a variable is malformed; `*why` is then a sentence that names it.
bool ReadSettings(Settings* out, std::string* why);

}  // namespace rgpu::emu
