// Images: what a program hands to cuModuleLoadData, cuLibraryLoadData and cuLinkAddData.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rgpu_emu/device/exec/module.h"

namespace rgpu::emu {

// The PTX texts of an image, and the bound on registers that it was linked with.
struct ImageText {
  std::vector<std::string> ptx;
  uint32_t max_registers = 0;  // 0: none
};

// Appends what an image holds whose length is not given: it is read from the image's own headers,
// which a program in this process vouches for.  CUDA_ERROR_NO_BINARY_FOR_GPU for machine code
// alone, with a message that says what makes the program send PTX; CUDA_ERROR_INVALID_IMAGE;
// CUDA_ERROR_INVALID_VALUE for null.
Outcome ReadImage(const void* image, ImageText* text);

// The same for an image of known length.
Outcome ReadSizedImage(std::span<const uint8_t> image, ImageText* text);

// The smaller of two bounds on registers, of which 0 is none.
uint32_t TighterBound(uint32_t a, uint32_t b);

// The container that cuLinkComplete gives back: `RGPUIMG1`, u64 total bytes, u32 count, count x
// (u32 bytes, PTX), and with a bound on registers u32 that.
std::vector<uint8_t> WriteContainer(const ImageText& text);

}  // namespace rgpu::emu
