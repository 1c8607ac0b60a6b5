// Fat binaries: several images of one program. The emulated device uses a PTX image.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rgpu_emu/device/exec/module.h"

namespace rgpu::emu {

// The outcome for an image that is damaged. why: in what way.
inline Outcome Damaged(const char* why) { return {CUDA_ERROR_INVALID_IMAGE, why}; }

inline constexpr uint32_t kFatbinMagic = 0xBA55ED50;

// Returns the length of the fatbin at `at`, from its header.
uint64_t FatbinBytes(const uint8_t* at);

// Appends the PTX of the entry that fits best: the newest target that is not later than the
// device's. CUDA_ERROR_NO_BINARY_FOR_GPU: all PTX is for later targets or, with an empty message,
// there is no PTX.
Outcome ReadFatbin(std::span<const uint8_t> fatbin, std::vector<std::string>* ptx);

}  // namespace rgpu::emu
