// What the sampler needs, from what the program gave: checks and translation of descriptions.
#include <algorithm>

#include "rgpu_common/native/base/array_shape.h"
#include "rgpu_emu/device/array.h"
#include "rgpu_emu/device/attributes.h"
#include "rgpu_emu/device/copy.h"
#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/texture_object.h"

namespace rgpu::emu {
namespace {

constexpr unsigned kKnownFlags = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES |
                                 CU_TRSF_SRGB | CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION |
                                 CU_TRSF_SEAMLESS_CUBEMAP;
constexpr uint32_t kMostAnisotropy = 16;

struct Texels {
  TexelType type = TexelType::kU8;
  bool normalized = false;  // of a unorm or snorm format
  bool known = false;
};

struct Format {
  CUarray_format format;
  TexelType type;
  bool normalized;
};

constexpr Format kFormats[] = {
    {CU_AD_FORMAT_UNSIGNED_INT8, TexelType::kU8, false},
    {CU_AD_FORMAT_UNSIGNED_INT16, TexelType::kU16, false},
    {CU_AD_FORMAT_UNSIGNED_INT32, TexelType::kU32, false},
    {CU_AD_FORMAT_SIGNED_INT8, TexelType::kS8, false},
    {CU_AD_FORMAT_SIGNED_INT16, TexelType::kS16, false},
    {CU_AD_FORMAT_SIGNED_INT32, TexelType::kS32, false},
    {CU_AD_FORMAT_HALF, TexelType::kF16, false},
    {CU_AD_FORMAT_FLOAT, TexelType::kF32, false},
    {CU_AD_FORMAT_UNORM_INT8X1, TexelType::kU8, true},
    {CU_AD_FORMAT_UNORM_INT8X2, TexelType::kU8, true},
    {CU_AD_FORMAT_UNORM_INT8X4, TexelType::kU8, true},
    {CU_AD_FORMAT_UNORM_INT16X1, TexelType::kU16, true},
    {CU_AD_FORMAT_UNORM_INT16X2, TexelType::kU16, true},
    {CU_AD_FORMAT_UNORM_INT16X4, TexelType::kU16, true},
    {CU_AD_FORMAT_SNORM_INT8X1, TexelType::kS8, true},
    {CU_AD_FORMAT_SNORM_INT8X2, TexelType::kS8, true},
    {CU_AD_FORMAT_SNORM_INT8X4, TexelType::kS8, true},
    {CU_AD_FORMAT_SNORM_INT16X1, TexelType::kS16, true},
    {CU_AD_FORMAT_SNORM_INT16X2, TexelType::kS16, true},
    {CU_AD_FORMAT_SNORM_INT16X4, TexelType::kS16, true},
    {CU_AD_FORMAT_UNORM_INT_101010_2, TexelType::kUnorm1010102, true},
};

Texels TexelsOf(CUarray_format format) {
  for (const Format& known : kFormats) {
    if (known.format == format) return {known.type, known.normalized, true};
  }
  return {};
}

// A format of a view. `channels` in memory; `element_bytes`: of a compressed block.
struct ViewForm {
  TexelType type;
  uint8_t channels;
  uint8_t element_bytes;
};

constexpr ViewForm kViews[] = {
    {TexelType::kU8, 1, 1},          {TexelType::kU8, 2, 2},
    {TexelType::kU8, 4, 4},          {TexelType::kS8, 1, 1},
    {TexelType::kS8, 2, 2},          {TexelType::kS8, 4, 4},
    {TexelType::kU16, 1, 2},         {TexelType::kU16, 2, 4},
    {TexelType::kU16, 4, 8},         {TexelType::kS16, 1, 2},
    {TexelType::kS16, 2, 4},         {TexelType::kS16, 4, 8},
    {TexelType::kU32, 1, 4},         {TexelType::kU32, 2, 8},
    {TexelType::kU32, 4, 16},        {TexelType::kS32, 1, 4},
    {TexelType::kS32, 2, 8},         {TexelType::kS32, 4, 16},
    {TexelType::kF16, 1, 2},         {TexelType::kF16, 2, 4},
    {TexelType::kF16, 4, 8},         {TexelType::kF32, 1, 4},
    {TexelType::kF32, 2, 8},         {TexelType::kF32, 4, 16},
    {TexelType::kBc1, 4, 8},         {TexelType::kBc2, 4, 16},
    {TexelType::kBc3, 4, 16},        {TexelType::kBc4Unorm, 1, 8},
    {TexelType::kBc4Snorm, 1, 8},    {TexelType::kBc5Unorm, 2, 16},
    {TexelType::kBc5Snorm, 2, 16},   {TexelType::kBc6hUnsigned, 3, 16},
    {TexelType::kBc6hSigned, 3, 16}, {TexelType::kBc7, 4, 16},
};
static_assert(std::size(kViews) == CU_RES_VIEW_FORMAT_UNSIGNED_BC7);

TextureShape ShapeOf(const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  const bool layered = (shape.Flags & CUDA_ARRAY3D_LAYERED) != 0;
  if ((shape.Flags & CUDA_ARRAY3D_CUBEMAP) != 0) {
    return layered ? TextureShape::kCubemapLayered : TextureShape::kCubemap;
  }
  if (shape.Height == 0) return layered ? TextureShape::k1DLayered : TextureShape::k1D;
  if (layered) return TextureShape::k2DLayered;
  return shape.Depth == 0 ? TextureShape::k2D : TextureShape::k3D;
}

// Formats that can be read as sRGB.
bool HasColors(TexelType type) {
  return type == TexelType::kU8 || type == TexelType::kBc1 || type == TexelType::kBc2 ||
         type == TexelType::kBc3 || type == TexelType::kBc7;
}
bool IsInteger(TexelType type) { return type <= TexelType::kS32; }
bool Promotes(TexelType type) {
  return IsInteger(type) && type != TexelType::kU32 && type != TexelType::kS32;
}

uint32_t Extent(uint64_t size) { return static_cast<uint32_t>(std::max<uint64_t>(1, size)); }

// Describes all levels and layers of an array.
CUresult FromArray(const ArrayRef& array, TextureState* state, Texels* texels) {
  if (array == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_ARRAY3D_DESCRIPTOR& shape = array->shape;
  *texels = TexelsOf(shape.Format);
  if (!texels->known) return CUDA_ERROR_INVALID_VALUE;  // with planes: each is an array of its own
  state->base = array->memory->base;
  state->bytes = array->layout.bytes;
  state->shape = ShapeOf(shape);
  state->type = texels->type;
  state->channels = static_cast<uint8_t>(shape.NumChannels);
  state->texel_bytes = static_cast<uint8_t>(base::ElementBytes(shape.Format, shape.NumChannels));
  state->level_count = array->mipmapped ? array->levels : 1;
  state->layers = base::IsLayered(shape) ? Extent(shape.Depth) : 1;
  for (uint32_t i = 0; i < state->level_count; ++i) {
    const base::ArrayPart& part = array->mipmapped ? array->layout.parts[i] : array->part;
    const CUDA_ARRAY3D_DESCRIPTOR level = base::LevelOf(shape, i);
    const uint32_t depth = base::IsLayered(shape) ? 1 : Extent(level.Depth);
    state->levels[i] = {part.offset,         part.row_pitch,       part.slice_pitch,
                        Extent(level.Width), Extent(level.Height), depth};
  }
  return CUDA_SUCCESS;
}

int Attribute(CUdevice_attribute attribute) {
  int value = 0;
  DeviceAttribute(attribute, &value);
  return value;
}

// Linear memory: rows that begin `pitch` bytes apart.
struct Linear2D {
  uint64_t address;
  CUarray_format format;
  unsigned channels;
  uint64_t width;
  uint64_t height;
  uint64_t pitch;
};

CUresult FromLinear(const Linear2D& from, TextureState* state, Texels* texels) {
  *texels = TexelsOf(from.format);
  const uint32_t element = base::ElementBytes(from.format, from.channels);
  const auto alignment = static_cast<uint64_t>(Attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT));
  if (!texels->known || element == 0 || from.width == 0 || from.height == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  uint64_t row = 0;
  uint64_t bytes = 0;
  if (from.address % alignment != 0 || __builtin_mul_overflow(from.width, element, &row) ||
      (from.height > 1 && from.pitch < row) || !SpanOf(from.pitch, row, from.height, &bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const PointerKind kind = KindOf(from.address, bytes);
  const bool reachable = kind == PointerKind::kDevice ||
                         (kind == PointerKind::kPinned && TheDevice().arena.Contains(from.address));
  if (!reachable) return CUDA_ERROR_INVALID_VALUE;
  state->base = from.address;
  state->bytes = bytes;
  state->type = texels->type;
  state->channels = static_cast<uint8_t>(from.channels);
  state->texel_bytes = static_cast<uint8_t>(element);
  state->levels[0] = {
      0, from.pitch, from.pitch * from.height, Extent(from.width), Extent(from.height), 1};
  return CUDA_SUCCESS;
}

CUresult FromBuffer(const CUDA_RESOURCE_DESC& resource, TextureState* state, Texels* texels) {
  const auto& linear = resource.res.linear;
  const uint32_t element = base::ElementBytes(linear.format, linear.numChannels);
  if (element == 0) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t count = linear.sizeInBytes / element;
  const auto most =
      static_cast<uint64_t>(Attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH));
  if (count > most) return CUDA_ERROR_INVALID_VALUE;
  state->shape = TextureShape::kBuffer;
  return FromLinear({linear.devPtr, linear.format, linear.numChannels, count, 1, count * element},
                    state, texels);
}

CUresult FromPlane(const CUDA_RESOURCE_DESC& resource, TextureState* state, Texels* texels) {
  const auto& plane = resource.res.pitch2D;
  const auto below = [](uint64_t size, CUdevice_attribute attribute) {
    return size <= static_cast<uint64_t>(Attribute(attribute));
  };
  const auto step = static_cast<uint64_t>(Attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT));
  if (!below(plane.width, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH) ||
      !below(plane.height, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT) ||
      !below(plane.pitchInBytes, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH) ||
      plane.pitchInBytes % step != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  state->shape = TextureShape::k2D;
  return FromLinear({plane.devPtr, plane.format, plane.numChannels, plane.width, plane.height,
                     plane.pitchInBytes},
                    state, texels);
}

CUresult FromResource(const CUDA_RESOURCE_DESC& resource, TextureState* state, Texels* texels) {
  if (resource.flags != 0) return CUDA_ERROR_INVALID_VALUE;
  switch (resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY:
      return FromArray(FindArray(resource.res.array.hArray), state, texels);
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      return FromArray(FindMipmappedArray(resource.res.mipmap.hMipmappedArray), state, texels);
    case CU_RESOURCE_TYPE_LINEAR:
      return FromBuffer(resource, state, texels);
    case CU_RESOURCE_TYPE_PITCH2D:
      return FromPlane(resource, state, texels);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// Restricts the state to the levels of the view.
bool ViewLevels(const CUDA_RESOURCE_VIEW_DESC& view, TextureState* state) {
  const uint32_t first = view.firstMipmapLevel;
  const uint32_t last = view.lastMipmapLevel;
  if (first > last || last >= state->level_count) return false;
  std::copy(state->levels + first, state->levels + last + 1, state->levels);
  state->level_count = last - first + 1;
  return true;
}

// Restricts the state to the layers of the view. In layers of cubes, six faces stay together.
bool ViewLayers(const CUDA_RESOURCE_VIEW_DESC& view, TextureState* state) {
  const uint32_t first = view.firstLayer;
  const uint32_t last = view.lastLayer;
  const bool layered = state->shape == TextureShape::k1DLayered ||
                       state->shape == TextureShape::k2DLayered ||
                       state->shape == TextureShape::kCubemapLayered;
  if (!layered) return first == 0 && last == 0;
  if (first > last || last >= state->layers) return false;
  const bool cubes = state->shape == TextureShape::kCubemapLayered;
  if (cubes && (first % 6 != 0 || (last + 1) % 6 != 0)) return false;
  for (TextureLevel& level : state->levels) level.offset += first * level.slice_pitch;
  state->layers = last - first + 1;
  return true;
}

// A view in a compressed format has four times as many texels in each direction as the array has
// elements.
bool ViewForms(const CUDA_RESOURCE_VIEW_DESC& view, TextureState* state, Texels* texels) {
  if (view.format > CU_RES_VIEW_FORMAT_UNSIGNED_BC7) return false;
  if (view.format == CU_RES_VIEW_FORMAT_NONE) return true;
  const ViewForm& form = kViews[view.format - 1];
  if (form.element_bytes != state->texel_bytes) return false;
  const bool blocks = IsBlockCompressed(form.type);
  if (blocks && state->type != TexelType::kU32) return false;
  state->type = form.type;
  state->channels = form.channels;
  *texels = {form.type, blocks, true};
  if (!blocks) return true;
  for (uint32_t i = 0; i < state->level_count; ++i) {
    TextureLevel& level = state->levels[i];
    const auto texels_of = [&](uint64_t whole, uint32_t elements) {
      return std::min(Extent(whole >> (view.firstMipmapLevel + i)), elements * 4);
    };
    level.width = texels_of(view.width, level.width);
    level.height = texels_of(view.height, level.height);
  }
  return true;
}

CUresult ApplyView(const CUDA_RESOURCE_VIEW_DESC& view, TextureState* state, Texels* texels) {
  const TextureLevel whole = state->levels[0];
  const bool blocks = view.format >= CU_RES_VIEW_FORMAT_UNSIGNED_BC1;
  const uint64_t scale = blocks ? 4 : 1;
  const bool flat = state->shape == TextureShape::k1D || state->shape == TextureShape::k1DLayered;
  const bool height = flat ? view.height <= 1 : view.height == whole.height * scale;
  const bool depth = state->shape != TextureShape::k3D || view.depth == whole.depth;
  const bool applies = view.width == whole.width * scale && height && depth && !(blocks && flat) &&
                       ViewLevels(view, state) && ViewLayers(view, state) &&
                       ViewForms(view, state, texels);
  return applies ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool IsKnown(const CUDA_TEXTURE_DESC& texture) {
  const bool modes = std::all_of(texture.addressMode, texture.addressMode + 3,
                                 [](auto mode) { return mode <= CU_TR_ADDRESS_MODE_BORDER; });
  return modes && texture.filterMode <= CU_TR_FILTER_MODE_LINEAR &&
         texture.mipmapFilterMode <= CU_TR_FILTER_MODE_LINEAR &&
         (texture.flags & ~kKnownFlags) == 0;
}

// How the texels are read.
void SetReading(const CUDA_TEXTURE_DESC& texture, const Texels& texels, TextureState* state) {
  const bool integers = (texture.flags & CU_TRSF_READ_AS_INTEGER) != 0;
  state->normalized_float = texels.normalized || (Promotes(texels.type) && !integers);
  state->normalized_coordinates = (texture.flags & CU_TRSF_NORMALIZED_COORDINATES) != 0;
  state->srgb =
      (texture.flags & CU_TRSF_SRGB) != 0 && state->normalized_float && HasColors(texels.type);
  state->seamless_cubemap = (texture.flags & CU_TRSF_SEAMLESS_CUBEMAP) != 0;
  state->trilinear_optimization = (texture.flags & CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION) == 0;
  state->linear_filter = texture.filterMode == CU_TR_FILTER_MODE_LINEAR;
  state->linear_mip_filter = texture.mipmapFilterMode == CU_TR_FILTER_MODE_LINEAR;
  for (int i = 0; i < 3; ++i) {
    auto mode = static_cast<AddressMode>(texture.addressMode[i]);
    // Repetition needs normalized coordinates.
    const bool repeats = mode == AddressMode::kWrap || mode == AddressMode::kMirror;
    if (repeats && !state->normalized_coordinates) mode = AddressMode::kClamp;
    state->address[i] = mode;
  }
  std::copy(texture.borderColor, texture.borderColor + 4, state->border);
  state->level_bias = texture.mipmapLevelBias;
  state->min_level = texture.minMipmapLevelClamp;
  state->max_level = texture.maxMipmapLevelClamp;
  state->max_anisotropy = std::min(texture.maxAnisotropy, kMostAnisotropy);
}

}  // namespace

CUresult TextureStateOf(const CUDA_RESOURCE_DESC& resource, const CUDA_TEXTURE_DESC& texture,
                        const CUDA_RESOURCE_VIEW_DESC* view, TextureState* state) {
  Texels texels;
  const bool in_array = resource.resType == CU_RESOURCE_TYPE_ARRAY ||
                        resource.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  if (!IsKnown(texture) || (view != nullptr && !in_array)) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = FromResource(resource, state, &texels);
  if (result == CUDA_SUCCESS && view != nullptr) result = ApplyView(*view, state, &texels);
  if (result != CUDA_SUCCESS) return result;
  SetReading(texture, texels, state);
  const bool cubes =
      state->shape == TextureShape::kCubemap || state->shape == TextureShape::kCubemapLayered;
  // Coordinates of a mipmapped array and of a cube's faces are always normalized.
  if (resource.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY && !state->normalized_coordinates) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (state->seamless_cubemap && !cubes) return CUDA_ERROR_INVALID_VALUE;
  // Only floats can be filtered. Linear memory never is.
  if (state->shape == TextureShape::kBuffer) state->linear_filter = false;
  const bool floats = state->normalized_float || !IsInteger(state->type);
  return floats || !state->linear_filter ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult SurfaceStateOf(const CUDA_RESOURCE_DESC& resource, TextureState* state) {
  Texels texels;
  if (resource.resType != CU_RESOURCE_TYPE_ARRAY) return CUDA_ERROR_INVALID_VALUE;
  const ArrayRef array = FindArray(resource.res.array.hArray);
  const bool allowed = array != nullptr && (array->shape.Flags & CUDA_ARRAY3D_SURFACE_LDST) != 0;
  const CUresult result =
      allowed ? FromResource(resource, state, &texels) : CUDA_ERROR_INVALID_VALUE;
  state->surface = true;
  return result;
}

}  // namespace rgpu::emu
