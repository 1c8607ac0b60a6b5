// The parameters of all copies with rows and slices, in one form. The shim and the emulated device
// refuse the same ones.
#pragma once

#include <cstdint>

#include "gen/cuda_abi.gen.h"
#include "rgpu_common/native/base/array_shape.h"

namespace rgpu::base {

// CU_DEVICE_ATTRIBUTE_MAX_PITCH of NVIDIA's devices and of the emulated one.
inline constexpr int kMaxPitch = 2147483647;

struct BoxSide {
  CUmemorytype type = CU_MEMORYTYPE_UNIFIED;
  // Linear memory: the address of the first byte that is copied; rows begin `pitch` bytes apart and
  // slices `rows` rows apart.
  uint64_t address = 0;
  uint64_t pitch = 0;
  uint64_t rows = 0;
  // An array, and where in it the box begins: x in bytes.
  CUarray array = nullptr;
  uint64_t x = 0;
  uint64_t y = 0;
  uint64_t z = 0;
  CUcontext context = nullptr;  // only of copies between contexts

  bool is_array() const { return type == CU_MEMORYTYPE_ARRAY; }
  // Sets `*bytes` to the distance from the first byte to the end of the last row. False: it
  // overflows, or rows or slices overlap.
  bool Span(uint64_t width, uint64_t height, uint64_t depth, uint64_t* bytes) const;
};

struct BoxCopy {
  BoxSide to;
  BoxSide from;
  uint64_t width = 0;  // bytes
  uint64_t height = 1;
  uint64_t depth = 1;

  bool empty() const { return width == 0 || height == 0 || depth == 0; }
};

// CUDA_ERROR_INVALID_VALUE: an unknown kind of memory, or a pitch or height that is too small
// or, of several rows, a pitch above kMaxPitch.
// Handles and addresses are not checked.
CUresult BoxOf(const CUDA_MEMCPY2D& copy, BoxCopy* box);
CUresult BoxOf(const CUDA_MEMCPY3D& copy, BoxCopy* box);
CUresult BoxOf(const CUDA_MEMCPY3D_PEER& copy, BoxCopy* box);

// A copy between an array of one dimension and linear memory of this kind.
BoxSide ArraySide(CUarray array, uint64_t offset);
BoxSide LinearSide(CUmemorytype type, uint64_t address, uint64_t bytes);

// One copy of cuMemcpy3DBatchAsync. Its sizes are in elements: `to_array` and `from_array` describe
// the arrays, and are null for pointers.
CUresult BoxOf(const CUDA_MEMCPY3D_BATCH_OP& copy, const ArrayExtent* to_array,
               const ArrayExtent* from_array, BoxCopy* box);

}  // namespace rgpu::base
