// The texture and surface instructions of one thread, by the rules that NVIDIA publishes: "Texture
// Fetching" in the CUDA programming guide, and the PTX manual. DESIGN.md says what they leave open.
#pragma once

#include <cstdint>

#include "rgpu_emu/device/exec/texture.h"
#include "rgpu_emu/device/kernel_abi.h"

namespace rgpu::emu {

// Why an instruction ends the launch. The values are codes for LeaveGuarded (block_runner.cc).
enum class TextureFault : int {
  kNone = 0,
  kNoTexture = -10,   // the value is no texture object
  kNoSurface = -11,   // the value is no surface object
  kGeometry = -12,    // the object has another geometry than the instruction
  kOutside = -13,     // .trap: the place is outside the surface
  kMisaligned = -14,  // the offset is no multiple of the access's size
  kFormat = -15,      // sured.p: the texel is not one integer of the access's size
};

// Runs one instruction. It reads and writes device memory, so it owns nothing (see fault_guard.h).
TextureFault RunTexture(TextureCall* call);

// The parts of RunTexture, by operation.
TextureFault ReadTexture(const TextureState& texture, TextureCall* call);
TextureFault RunSurface(const TextureState& surface, TextureCall* call);
uint32_t QueryTexture(const TextureState& object, TextureAttribute attribute, uint32_t level);

}  // namespace rgpu::emu
