// Where in a texture an instruction reads: geometry, addressing modes and mipmap levels.
#pragma once

#include <cstdint>

#include "rgpu_emu/device/exec/texture_texel.h"
#include "rgpu_emu/device/kernel_abi.h"

namespace rgpu::emu {

bool IsCube(const TextureState& texture);
// Coordinates within a layer or face.
unsigned AxesOf(TextureGeometry geometry);
// True if an instruction of this geometry may read the texture, or access the surface. The faces of
// cubes are layers of a surface.
bool FitsTexture(TextureGeometry geometry, const TextureState& texture);
bool FitsSurface(TextureGeometry geometry, const TextureState& surface);

// An offset is a number of four bits, from -8 to 7.
int32_t FourBits(int32_t offset);
uint32_t Extent(const TextureLevel& level, unsigned axis);
// Integers outside linear memory are 0; the faces of cubes end.
AddressMode ModeOf(const TextureState& texture, unsigned axis);

struct Coordinate {
  double at;
  int32_t offset;   // in texels
  bool normalized;  // `at` is a part of the extent
};

// Returns a coordinate in texels after the addressing mode, from a little below 0 to a little above
// `size`.
double TexelCoordinate(const Coordinate& coordinate, uint32_t size, AddressMode mode);

struct LayerOf {
  uint32_t level;
  uint32_t layer;
  unsigned axes;
};

// Returns the texel of any number on each axis: by the addressing modes, or the border's colour.
Texel FetchTexel(const TextureState& texture, const LayerOf& where, const int64_t* index);

// Two levels and the weight of the upper one, or one.
struct Levels {
  uint32_t lower = 0;
  uint32_t upper = 0;
  double weight = 0;
  uint32_t nearest = 0;
};

// Chooses levels by the texture's bias and bounds and its filter between levels.
Levels ChooseLevels(const TextureState& texture, double level);

// How the coordinates change from one column, and from one row, to the next.
struct Gradients {
  double by[2][3];
};

struct GradientLevel {
  double level;
  unsigned samples;  // more than 1: an anisotropic filter
  unsigned longer;   // the gradient along which its samples lie
};

GradientLevel LevelOfGradients(const TextureState& texture, const Gradients& gradients,
                               unsigned axes);

}  // namespace rgpu::emu
