// Images that a program passes to cuModuleLoadData, cuLibraryLoadData and cuLinkAddData.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rgpu_emu/device/exec/module.h"

namespace rgpu::emu {

// The PTX texts of an image, and the register limit with which it was linked.
struct ImageText {
  std::vector<std::string> ptx;
  uint32_t max_registers = 0;  // 0: no limit
};

// Appends the contents of an image of unknown length. The length is read from the image's headers,
// which the program in this process is trusted to have right. CUDA_ERROR_NO_BINARY_FOR_GPU: there
// is only machine code; the message says which setting makes the program send PTX.
// CUDA_ERROR_INVALID_IMAGE: damaged. CUDA_ERROR_INVALID_VALUE: null.
Outcome ReadImage(const void* image, ImageText* text);

// The same for an image of known length.
Outcome ReadSizedImage(std::span<const uint8_t> image, ImageText* text);

// Returns the smaller of two register limits, where 0 means no limit.
uint32_t TighterBound(uint32_t a, uint32_t b);

// Returns the container that cuLinkComplete outputs: `RGPUIMG1`, u64 total bytes, u32 count, count
// x (u32 bytes, PTX), and u32 register limit if there is one.
std::vector<uint8_t> WriteContainer(const ImageText& text);

}  // namespace rgpu::emu
