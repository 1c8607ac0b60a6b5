// Images: what a program hands to cuModuleLoadData, cuLibraryLoadData and cuLinkAddData.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rgpu_emu/device/exec/module.h"

namespace rgpu::emu {

// The PTX texts in an image whose length is not given: it is read from the image's own headers,
// which a program in this process vouches for.  CUDA_ERROR_NO_BINARY_FOR_GPU for machine code
// alone, with a message that says what makes the program send PTX; CUDA_ERROR_INVALID_IMAGE;
// CUDA_ERROR_INVALID_VALUE for null.
Outcome ReadImage(const void* image, std::vector<std::string>* ptx);

// The same for an image of known length.
Outcome ReadSizedImage(std::span<const uint8_t> image, std::vector<std::string>* ptx);

// The container that cuLinkComplete gives back: `RGPUIMG1`, u64 total bytes, u32 count, count x
// (u32 bytes, PTX).
std::vector<uint8_t> WriteContainer(const std::vector<std::string>& ptx);

}  // namespace rgpu::emu
