// The sampler of the emulated device as functions for ctypes: one translation unit, which compiles
// in a few seconds.
#include "rgpu_emu/device/exec/half_float.cc"
#include "rgpu_emu/device/exec/texture.cc"
#include "rgpu_emu/device/exec/texture_blocks.cc"
#include "rgpu_emu/device/exec/texture_cube.cc"
#include "rgpu_emu/device/exec/texture_ops.cc"
#include "rgpu_emu/device/exec/texture_place.cc"
#include "rgpu_emu/device/exec/texture_query.cc"
#include "rgpu_emu/device/exec/texture_sampler.cc"
#include "rgpu_emu/device/exec/texture_surface.cc"
#include "rgpu_emu/device/exec/texture_texel.cc"

extern "C" {

uint64_t StateBytes() { return sizeof(rgpu::emu::TextureState); }

uint64_t Publish(const rgpu::emu::TextureState* state) {
  return rgpu::emu::PublishTexture(std::make_unique<rgpu::emu::TextureState>(*state));
}

int Withdraw(uint64_t object) { return rgpu::emu::WithdrawTexture(object) != nullptr ? 1 : 0; }

int Run(rgpu::emu::TextureCall* call) { return static_cast<int>(rgpu::emu::RunTexture(call)); }
}
