// Fat binaries: several images of one program; the emulated device takes a PTX one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rgpu_emu/device/exec/module.h"

namespace rgpu::emu {

inline constexpr uint32_t kFatbinMagic = 0xBA55ED50;

// Length of the fatbin at `at` as its header says.
uint64_t FatbinBytes(const uint8_t* at);

// Appends the PTX of the entry that fits best: the newest target up to the device's own.
// CUDA_ERROR_NO_BINARY_FOR_GPU when all are for later targets, and with an empty message when
// there is no PTX.
Outcome ReadFatbin(std::span<const uint8_t> fatbin, std::vector<std::string>* ptx);

}  // namespace rgpu::emu
