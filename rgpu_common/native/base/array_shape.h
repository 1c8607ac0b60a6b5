// The shape of CUDA arrays: formats, sizes, mipmap levels and planes, and which boxes lie in one.
// The shim, the worker and the emulated device agree on it.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "gen/cuda_abi.gen.h"

namespace rgpu::base {

// Levels of the largest array, of 131,072 texels.
inline constexpr uint32_t kMaxArrayLevels = 18;

// Bytes of an element with that many channels. 0: the format is not known, is compressed or has
// planes, or cannot have so many channels.
uint32_t ElementBytes(CUarray_format format, unsigned channels);

// A plane of a multi-planar format: its format, and how many times smaller it is than the array.
struct PlaneForm {
  CUarray_format format;
  unsigned channels;
  unsigned width_divisor;
  unsigned height_divisor;
};
// Empty: the format has no planes.
std::span<const PlaneForm> PlanesOf(CUarray_format format);

// Checks what holds for every array: known flags, layers, faces and levels.
// CUDA_ERROR_NOT_SUPPORTED: sparse arrays and arrays whose memory is mapped later, because
// cuMemMapArrayAsync is not supported.
CUresult CheckArray(const CUDA_ARRAY3D_DESCRIPTOR& array, unsigned levels);

// True if `Depth` counts layers or faces.
inline bool IsLayered(const CUDA_ARRAY3D_DESCRIPTOR& array) {
  return (array.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
}

// How many levels an array of this size can have.
uint32_t MostLevels(const CUDA_ARRAY3D_DESCRIPTOR& array);

// The array that is one level of a mipmapped array, or one plane of an array. The part must exist.
CUDA_ARRAY3D_DESCRIPTOR LevelOf(const CUDA_ARRAY3D_DESCRIPTOR& array, uint32_t level);
CUDA_ARRAY3D_DESCRIPTOR PlaneOf(const CUDA_ARRAY3D_DESCRIPTOR& array, uint32_t plane);

// The bytes and rows of an array. A copy moves whole elements.
struct ArrayExtent {
  uint32_t element_bytes = 0;
  uint64_t row_bytes = 0;
  uint64_t rows = 0;    // 1 for an array of one dimension
  uint64_t slices = 0;  // of a 3D array, or layers
};
// False: ElementBytes does not know the elements, so only the driver can check copies.
bool ExtentOf(const CUDA_ARRAY3D_DESCRIPTOR& array, ArrayExtent* extent);

// A box of bytes in an array: x and width are in bytes.
struct ArrayBox {
  uint64_t x = 0;
  uint64_t y = 0;
  uint64_t z = 0;
  uint64_t width = 0;
  uint64_t height = 1;
  uint64_t depth = 1;
};
bool Holds(const ArrayExtent& extent, const ArrayBox& box);

// Where the parts of an array lie in its memory: levels of a mipmapped array, planes, or the array
// itself. Rows are padded to 64 bytes and parts begin at multiples of 512, as the emulated device
// does. Other devices pad in ways of their own.
struct ArrayPart {
  uint64_t offset = 0;
  uint64_t row_pitch = 0;
  uint64_t slice_pitch = 0;
};
struct ArrayLayout {
  uint64_t bytes = 0;
  uint32_t count = 0;
  std::array<ArrayPart, kMaxArrayLevels> parts{};
};
// False: the memory is larger than 2^48 bytes. Elements that are not known count 16 bytes.
bool LayOut(const CUDA_ARRAY3D_DESCRIPTOR& array, uint32_t levels, ArrayLayout* layout);

}  // namespace rgpu::base
