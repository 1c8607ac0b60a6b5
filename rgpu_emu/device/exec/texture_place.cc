#include "rgpu_emu/device/exec/texture_place.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "rgpu_emu/device/exec/texture_cube.h"

namespace rgpu::emu {
namespace {

// Beyond so many texels or extents outside, the addressing modes without a period change nothing.
constexpr double kFar = 64;

// Returns a number modulo `period`, in [0, period].
double Modulo(double number, double period) {
  const double rest = std::fmod(number, period);
  return rest < 0 ? rest + period : rest;
}

int64_t Modulo(int64_t number, int64_t period) {
  const int64_t rest = number % period;
  return rest < 0 ? rest + period : rest;
}

// Returns the texel for any number; -1: the border.
int64_t Resolve(int64_t number, int64_t size, AddressMode mode) {
  switch (mode) {
    case AddressMode::kWrap:
      return Modulo(number, size);
    case AddressMode::kMirror: {
      const int64_t at = Modulo(number, 2 * size);
      return at < size ? at : 2 * size - 1 - at;
    }
    case AddressMode::kBorder:
      return number < 0 || number >= size ? -1 : number;
    case AddressMode::kClamp:
      break;
  }
  return std::clamp<int64_t>(number, 0, size - 1);
}

bool Inside(int64_t number, uint32_t size) { return number >= 0 && number < size; }

// A filter at the edge of a face reads the next face. At a corner three faces meet: the fourth
// texel is the mean of the others.
Texel FetchSeamless(const TextureState& texture, const LayerOf& where, const int64_t* index) {
  const uint32_t size = texture.levels[where.level].width;
  const uint32_t cube = where.layer / 6 * 6;
  const auto fetch = [&](int64_t x, int64_t y) {
    const FaceTexel found =
        Inside(x, size) && Inside(y, size)
            ? FaceTexel{where.layer - cube, static_cast<uint32_t>(x), static_cast<uint32_t>(y)}
            : AcrossTheEdge(where.layer - cube, x, y, size);
    return ReadTexel(texture, {where.level, cube + found.face, found.x, found.y, 0});
  };
  const int64_t x = std::clamp<int64_t>(index[0], -1, size);
  const int64_t y = std::clamp<int64_t>(index[1], -1, size);
  if (Inside(x, size) || Inside(y, size)) return fetch(x, y);
  const int64_t near_x = std::clamp<int64_t>(x, 0, int64_t{size} - 1);
  const int64_t near_y = std::clamp<int64_t>(y, 0, int64_t{size} - 1);
  const Texel three[3] = {fetch(near_x, near_y), fetch(x, near_y), fetch(near_x, y)};
  if (!ReadsFloats(texture)) return three[0];
  Texel mean{};
  for (unsigned i = 0; i < 4; ++i) {
    double sum = 0;
    for (const Texel& texel : three) sum += double{std::bit_cast<float>(texel.words[i])};
    mean.words[i] = std::bit_cast<uint32_t>(static_cast<float>(sum / 3));
  }
  return mean;
}

}  // namespace

bool IsCube(const TextureState& texture) {
  return texture.shape == TextureShape::kCubemap || texture.shape == TextureShape::kCubemapLayered;
}

unsigned AxesOf(TextureGeometry geometry) {
  if (geometry == kGeometry1D || geometry == kGeometry1DArray) return 1;
  return geometry == kGeometry3D ? 3 : 2;
}

// A texture of one row is read as one dimension too, as a GPU does: Dr.Jit makes arrays of height 1
// for its 1D textures.
bool FitsTexture(TextureGeometry geometry, const TextureState& texture) {
  switch (texture.shape) {
    case TextureShape::kBuffer:
    case TextureShape::k1D:
      return geometry == kGeometry1D;
    case TextureShape::k1DLayered:
      return geometry == kGeometry1DArray;
    case TextureShape::k2D:
      return geometry == kGeometry2D || (geometry == kGeometry1D && texture.levels[0].height == 1);
    case TextureShape::k2DLayered:
      return geometry == kGeometry2DArray;
    case TextureShape::k3D:
      return geometry == kGeometry3D;
    case TextureShape::kCubemap:
      return geometry == kGeometryCube;
    case TextureShape::kCubemapLayered:
      return geometry == kGeometryCubeArray;
  }
  return false;
}

bool FitsSurface(TextureGeometry geometry, const TextureState& surface) {
  if (IsCube(surface)) return geometry == kGeometry2DArray;
  return FitsTexture(geometry, surface);
}

int32_t FourBits(int32_t offset) { return (offset & 15) - ((offset & 8) << 1); }

uint32_t Extent(const TextureLevel& level, unsigned axis) {
  return axis == 0 ? level.width : axis == 1 ? level.height : level.depth;
}

AddressMode ModeOf(const TextureState& texture, unsigned axis) {
  if (texture.shape == TextureShape::kBuffer) return AddressMode::kBorder;
  return IsCube(texture) ? AddressMode::kClamp : texture.address[axis];
}

double TexelCoordinate(const Coordinate& coordinate, uint32_t size, AddressMode mode) {
  const double extent = size;
  double at = coordinate.normalized ? coordinate.at * extent : coordinate.at;
  at += coordinate.offset;
  if (mode == AddressMode::kWrap) return Modulo(at, extent);
  if (mode == AddressMode::kMirror) {
    const double twice = Modulo(at, 2 * extent);
    return twice < extent ? twice : 2 * extent - twice;
  }
  return std::clamp(at, -kFar, extent + kFar);
}

Texel FetchTexel(const TextureState& texture, const LayerOf& where, const int64_t* index) {
  if (texture.seamless_cubemap && IsCube(texture)) return FetchSeamless(texture, where, index);
  uint32_t found[3] = {};
  for (unsigned axis = 0; axis < where.axes; ++axis) {
    const uint32_t size = Extent(texture.levels[where.level], axis);
    const int64_t number = Resolve(index[axis], size, ModeOf(texture, axis));
    if (number < 0) return BorderTexel(texture);
    found[axis] = static_cast<uint32_t>(number);
  }
  return ReadTexel(texture, {where.level, where.layer, found[0], found[1], found[2]});
}

Levels ChooseLevels(const TextureState& texture, double level) {
  level = std::max(level + double{texture.level_bias}, double{texture.min_level});
  level = std::min(level, double{texture.max_level});
  level = level > 0 ? std::min(level, static_cast<double>(texture.level_count - 1)) : 0;  // NaN: 0
  const auto nearest = static_cast<uint32_t>(std::floor(level + 0.5));
  if (!texture.linear_mip_filter) return {nearest, nearest, 0, nearest};
  const double steps = std::floor(level * 256 + 0.5);
  const auto lower = static_cast<uint32_t>(steps / 256);
  const double weight = steps / 256 - lower;
  return {lower, std::min(lower + 1, texture.level_count - 1), weight, nearest};
}

GradientLevel LevelOfGradients(const TextureState& texture, const Gradients& gradients,
                               unsigned axes) {
  double length[2] = {};
  for (unsigned way = 0; way < 2; ++way) {
    for (unsigned axis = 0; axis < axes; ++axis) {
      const bool scaled = texture.normalized_coordinates || IsCube(texture);
      const double by = gradients.by[way][axis] * (scaled ? Extent(texture.levels[0], axis) : 1);
      length[way] += by * by;
    }
    length[way] = std::sqrt(length[way]);
  }
  const unsigned longer = length[1] > length[0] ? 1 : 0;
  const double most = length[longer];
  const double least = length[1 - longer];
  const double limit = std::clamp<double>(texture.max_anisotropy, 1, 16);
  const double ratio = least > 0 ? std::ceil(most / least) : most > 0 ? limit : 1;
  const double samples = std::min(ratio, limit);
  return {std::log2(most / samples), static_cast<unsigned>(samples), longer};
}

}  // namespace rgpu::emu
