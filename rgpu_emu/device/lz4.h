// The LZ4 block format.
#pragma once

#include <cstdint>
#include <span>

namespace rgpu::emu {

// Fills all of `out`. Returns false if the input is malformed or gives another number of bytes.
bool Lz4Decode(std::span<const uint8_t> in, std::span<uint8_t> out);

}  // namespace rgpu::emu
