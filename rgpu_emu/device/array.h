// CUDA arrays: memory for textures and surfaces, which has no address for programs.
//
// The texels lie in the arena, row after row, hidden from Arena::Find. So no copy, free or query by
// address reaches them. A mipmapped array is one memory; its levels are arrays in it, as the planes
// of a multi-planar array are.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>

#include "gen/cuda_abi.gen.h"
#include "rgpu_common/native/base/array_shape.h"
#include "rgpu_emu/device/arena.h"
#include "rgpu_emu/device/context.h"

namespace rgpu::emu {

struct Array {
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  uint32_t levels = 1;
  bool mipmapped = false;
  uint64_t context = 0;  // handle of the owning context
  AllocationRef memory;
  base::ArrayLayout layout;  // of the memory
  base::ArrayPart part;      // of this array, if it is not mipmapped and has no planes
  bool whole = true;         // false: a level or plane, which goes with the array that has it

  // The handles of the levels or planes that the program has asked for.
  std::mutex mutex;
  std::array<uint64_t, base::kMaxArrayLevels> parts{};

  bool has_planes() const { return !base::PlanesOf(shape.Format).empty(); }
  uint64_t base() const { return memory->base + part.offset; }
};

using ArrayRef = std::shared_ptr<Array>;

// CUDA_ERROR_INVALID_VALUE or CUDA_ERROR_NOT_SUPPORTED: the device has no such arrays.
CUresult CheckDeviceArray(const CUDA_ARRAY3D_DESCRIPTOR& shape, uint32_t levels);

ArrayRef FindArray(CUarray handle);
ArrayRef FindMipmappedArray(CUmipmappedArray handle);

// Frees the memory of all arrays of a context that ends, when `after` is done.
void DropArrays(const Context& context, const Fences& after);

}  // namespace rgpu::emu
