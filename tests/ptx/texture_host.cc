// The sampler of the emulated device as functions for ctypes.
#include "rgpu_emu/device/exec/texture_ops.h"

extern "C" {

uint64_t StateBytes() { return sizeof(rgpu::emu::TextureState); }

uint64_t Publish(const rgpu::emu::TextureState* state) {
  return rgpu::emu::PublishTexture(std::make_unique<rgpu::emu::TextureState>(*state));
}

int Withdraw(uint64_t object) { return rgpu::emu::WithdrawTexture(object) != nullptr ? 1 : 0; }

int Run(rgpu::emu::TextureCall* call) {
  return static_cast<int>(rgpu::emu::RunTexture(call));
}
}
