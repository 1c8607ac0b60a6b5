// tex and tld4: coordinates to texels, filters, and mipmap levels.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "rgpu_emu/device/exec/texture_cube.h"
#include "rgpu_emu/device/exec/texture_ops.h"
#include "rgpu_emu/device/exec/texture_place.h"
#include "rgpu_emu/device/exec/texture_texel.h"

namespace rgpu::emu {
namespace {

struct Colour {
  double value[4];
};

// The layers that the instruction reads: one, or the six faces of one cube.
uint32_t FirstLayer(const TextureState& texture, const TextureCall& call) {
  const uint32_t faces = IsCube(texture) ? 6 : 1;
  const uint32_t items = std::max(texture.layers / faces, 1U);
  const bool array =
      call.geometry >= kGeometry1DArray && call.geometry != kGeometryCube;  // others have one
  return array ? std::min(call.layer, items - 1) * faces : 0;
}

// Where a thread samples: coordinates as the instruction gives them; of a cube those on its face.
struct Sample {
  const TextureState& texture;
  unsigned axes;
  uint32_t layer;
  double at[3];
  int32_t offset[3];
  bool normalized;
};

Texel Fetch(const Sample& sample, uint32_t level, const int64_t* index) {
  return FetchTexel(sample.texture, {level, sample.layer, sample.axes}, index);
}

double InTexels(const Sample& sample, uint32_t level, unsigned axis) {
  const uint32_t size = Extent(sample.texture.levels[level], axis);
  const AddressMode mode = ModeOf(sample.texture, axis);
  return TexelCoordinate({sample.at[axis], sample.offset[axis], sample.normalized}, size, mode);
}

Texel NearestTexel(const Sample& sample, uint32_t level) {
  int64_t index[3] = {};
  for (unsigned axis = 0; axis < sample.axes; ++axis)
    index[axis] = static_cast<int64_t>(std::floor(InTexels(sample, level, axis)));
  return Fetch(sample, level, index);
}

// The lower texels of a linear filter, and the weights of the upper ones. Places are rounded to
// 1/256 of a texel, so that a gather at the edge of a texel takes the texels that a filter takes.
struct Footprint {
  int64_t lower[3];
  double weight[3];
};

Footprint FootprintOf(const Sample& sample, uint32_t level) {
  Footprint footprint{};
  for (unsigned axis = 0; axis < sample.axes; ++axis) {
    const double from = InTexels(sample, level, axis) - 0.5;
    const double rounded = std::floor(from * 256 + 0.5) / 256;
    const double lower = std::floor(rounded);
    footprint.lower[axis] = static_cast<int64_t>(lower);
    footprint.weight[axis] = rounded - lower;
  }
  return footprint;
}

void Add(const Texel& texel, double weight, Colour* sum) {
  for (unsigned i = 0; i < 4; ++i)
    sum->value[i] += weight * double{std::bit_cast<float>(texel.words[i])};
}

// A texel with the weight 0 does not count, also if it is infinite.
Colour LinearColour(const Sample& sample, uint32_t level) {
  const Footprint footprint = FootprintOf(sample, level);
  Colour sum{};
  for (unsigned corner = 0; corner < 1U << sample.axes; ++corner) {
    int64_t index[3] = {};
    double weight = 1;
    for (unsigned axis = 0; axis < sample.axes; ++axis) {
      const bool upper = (corner >> axis & 1) != 0;
      index[axis] = footprint.lower[axis] + (upper ? 1 : 0);
      weight *= upper ? footprint.weight[axis] : 1 - footprint.weight[axis];
    }
    if (weight != 0) Add(Fetch(sample, level, index), weight, &sum);
  }
  return sum;
}

Colour LevelColour(const Sample& sample, uint32_t level) {
  if (sample.texture.linear_filter) return LinearColour(sample, level);
  Colour colour{};
  Add(NearestTexel(sample, level), 1, &colour);
  return colour;
}

Texel ToTexel(const Colour& colour) {
  Texel texel{};
  for (unsigned i = 0; i < 4; ++i)
    texel.words[i] = std::bit_cast<uint32_t>(static_cast<float>(colour.value[i]));
  return texel;
}

// Integers are not filtered.
Texel ReadAt(const Sample& sample, const Levels& levels) {
  if (!ReadsFloats(sample.texture)) return NearestTexel(sample, levels.nearest);
  if (!sample.texture.linear_filter && levels.weight == 0)
    return NearestTexel(sample, levels.lower);
  Colour colour = LevelColour(sample, levels.lower);
  if (levels.weight != 0) {
    const Colour upper = LevelColour(sample, levels.upper);
    for (unsigned i = 0; i < 4; ++i)
      colour.value[i] = (1 - levels.weight) * colour.value[i] + levels.weight * upper.value[i];
  }
  return ToTexel(colour);
}

// Returns a finite number: NaN counts as 0, and an infinity as the greatest float.
double Float(uint32_t bits) {
  constexpr float kMost = std::numeric_limits<float>::max();
  const float value = std::bit_cast<float>(bits);
  return std::isnan(value) ? 0 : double{std::clamp(value, -kMost, kMost)};
}

Sample SampleOf(const TextureState& texture, const TextureCall& call) {
  Sample sample{texture, AxesOf(call.geometry), FirstLayer(texture, call), {}, {}, false};
  sample.normalized = texture.normalized_coordinates;
  for (unsigned i = 0; i < 3; ++i) {
    sample.at[i] = Float(call.at[i]);
    sample.offset[i] = FourBits(call.offset[i]);
  }
  if (IsCube(texture)) {
    const FacePoint point = ProjectOnCube(sample.at);
    sample.layer += point.face;
    sample.at[0] = point.s;
    sample.at[1] = point.t;
    sample.normalized = true;
  }
  return sample;
}

// Integer coordinates are numbers of texels. They are not filtered.
Texel ReadIntegers(const TextureState& texture, const TextureCall& call) {
  int64_t index[3] = {};
  const unsigned axes = AxesOf(call.geometry);
  for (unsigned i = 0; i < axes; ++i)
    index[i] = int64_t{static_cast<int32_t>(call.at[i])} + FourBits(call.offset[i]);
  const int64_t asked = call.op == kTextureLevel ? int64_t{static_cast<int32_t>(call.lod)} : 0;
  const auto level =
      static_cast<uint32_t>(std::clamp<int64_t>(asked, 0, int64_t{texture.level_count} - 1));
  return FetchTexel(texture, {level, FirstLayer(texture, call), axes}, index);
}

Gradients GradientsOf(const Sample& sample, const TextureCall& call) {
  Gradients gradients{};
  double given[2][3];
  double at[3];
  for (unsigned i = 0; i < 3; ++i) {
    given[0][i] = Float(call.dx[i]);
    given[1][i] = Float(call.dy[i]);
    at[i] = Float(call.at[i]);
  }
  for (unsigned way = 0; way < 2; ++way) {
    if (IsCube(sample.texture)) {
      const FacePoint moved = ProjectChange(at, given[way]);
      given[way][0] = moved.s;
      given[way][1] = moved.t;
    }
    for (unsigned axis = 0; axis < sample.axes; ++axis) gradients.by[way][axis] = given[way][axis];
  }
  return gradients;
}

// Returns the mean of several samples along the longer gradient: the filter that OpenGL's
// GL_EXT_texture_filter_anisotropic describes.
Texel ReadGradient(Sample sample, const TextureCall& call) {
  const Gradients gradients = GradientsOf(sample, call);
  const GradientLevel chosen = LevelOfGradients(sample.texture, gradients, sample.axes);
  const Levels levels = ChooseLevels(sample.texture, chosen.level);
  if (chosen.samples < 2 || !ReadsFloats(sample.texture)) return ReadAt(sample, levels);
  const double* along = gradients.by[chosen.longer];
  Colour mean{};
  double middle[3];
  std::copy(sample.at, sample.at + 3, middle);
  for (unsigned i = 1; i <= chosen.samples; ++i) {
    const double step = static_cast<double>(i) / (chosen.samples + 1) - 0.5;
    for (unsigned axis = 0; axis < sample.axes; ++axis)
      sample.at[axis] = middle[axis] + along[axis] * step;
    Add(ReadAt(sample, levels), 1.0 / chosen.samples, &mean);
  }
  return ToTexel(mean);
}

// The texels of a linear filter: counter-clockwise, beginning at the lower left.
Texel Gather(const Sample& sample, unsigned component) {
  constexpr unsigned kColumn[4] = {0, 1, 1, 0};
  constexpr unsigned kRow[4] = {1, 1, 0, 0};
  const Footprint footprint = FootprintOf(sample, 0);
  Texel gathered{};
  for (unsigned i = 0; i < 4; ++i) {
    const int64_t index[3] = {footprint.lower[0] + kColumn[i], footprint.lower[1] + kRow[i], 0};
    gathered.words[i] = Fetch(sample, 0, index).words[component % 4];
  }
  return gathered;
}

Texel Read(const TextureState& texture, const TextureCall& call) {
  if (call.integers != 0) return ReadIntegers(texture, call);
  const Sample sample = SampleOf(texture, call);
  switch (call.op) {
    case kTextureGather:
      return Gather(sample, call.detail);
    case kTextureLevel:
      return ReadAt(sample, ChooseLevels(texture, Float(call.lod)));
    case kTextureGradient:
      return ReadGradient(sample, call);
    default:
      return ReadAt(sample, Levels{});
  }
}

}  // namespace

TextureFault ReadTexture(const TextureState& texture, TextureCall* call) {
  if (!FitsTexture(call->geometry, texture)) return TextureFault::kGeometry;
  const Texel texel = Read(texture, *call);
  for (unsigned i = 0; i < 2; ++i)
    call->data[i] = texel.words[2 * i] | uint64_t{texel.words[2 * i + 1]} << 32;
  return TextureFault::kNone;
}

}  // namespace rgpu::emu
