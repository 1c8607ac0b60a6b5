// Not part of the driver API: what a worker needs to let its client choose addresses
// (rgpu_server/executor/memory_credit.h). Call after cuInit.
#include <algorithm>
#include <cstdint>

#include "rgpu_emu/device/device.h"

#define RGPU_EMU_ABI extern "C" __attribute__((visibility("default")))

// Takes an eighth of the device's addresses for good, at most `*bytes`, and says how many. 0: there
// are not enough in a row.
RGPU_EMU_ABI uint64_t rgpu_emu_window(uint64_t* bytes);
// Sets memory aside for rgpu_emu_back, and gives back what was not used. 0: there is not enough.
RGPU_EMU_ABI int rgpu_emu_set_aside(uint64_t bytes);
RGPU_EMU_ABI void rgpu_emu_give_back(uint64_t bytes);
// Allocates at `address`, in the current context, from what was set aside. cuMemFree frees it; the
// memory is not set aside again.
RGPU_EMU_ABI CUresult rgpu_emu_back(CUdeviceptr address, uint64_t bytes);

using rgpu::emu::TheDevice;

uint64_t rgpu_emu_window(uint64_t* bytes) {
  using rgpu::emu::kPageBytes;
  rgpu::emu::Arena& arena = TheDevice().arena;
  *bytes = std::min(*bytes, arena.bytes() / 8) / kPageBytes * kPageBytes;
  return arena.TakeAddresses(*bytes, kPageBytes, 0);
}

int rgpu_emu_set_aside(uint64_t bytes) { return TheDevice().arena.Charge(bytes) ? 1 : 0; }

void rgpu_emu_give_back(uint64_t bytes) { TheDevice().arena.Uncharge(bytes); }

CUresult rgpu_emu_back(CUdeviceptr address, uint64_t bytes) {
  std::shared_ptr<rgpu::emu::Context> context;
  const CUresult found = rgpu::emu::CurrentContext(&context);
  if (found != CUDA_SUCCESS) return found;
  TheDevice().limbo.Reap();
  return TheDevice().arena.Back(address, bytes, context->handle) == nullptr
             ? CUDA_ERROR_OUT_OF_MEMORY
             : CUDA_SUCCESS;
}
