// txq and suq. The numbers are those of the PTX manual ("Texture Sampler and Surface Types"), which
// are OpenCL's.
#include "rgpu_emu/device/exec/texture_ops.h"

namespace rgpu::emu {
namespace {

// CL_SNORM_INT8 and the like. A compressed format has no number.
uint32_t DataType(const TextureState& object) {
  const bool normalized = object.normalized_float && !object.surface;
  switch (object.type) {
    case TexelType::kU8:
      return normalized ? 0x10D2 : 0x10DA;
    case TexelType::kU16:
      return normalized ? 0x10D3 : 0x10DB;
    case TexelType::kU32:
      return 0x10DC;
    case TexelType::kS8:
      return normalized ? 0x10D0 : 0x10D7;
    case TexelType::kS16:
      return normalized ? 0x10D1 : 0x10D8;
    case TexelType::kS32:
      return 0x10D9;
    case TexelType::kF16:
      return 0x10DD;
    case TexelType::kF32:
      return 0x10DE;
    case TexelType::kUnorm1010102:
      return 0x10D6;
    default:
      return 0;
  }
}

// CL_R, CL_RG, CL_RGB, CL_RGBA.
uint32_t ChannelOrder(const TextureState& object) {
  if (IsBlockCompressed(object.type) && object.channels == 3) return 0x10B4;
  return object.channels == 1 ? 0x10B0 : object.channels == 2 ? 0x10B2 : 0x10B5;
}

uint32_t ArraySize(const TextureState& object) {
  switch (object.shape) {
    case TextureShape::k1DLayered:
    case TextureShape::k2DLayered:
      return object.layers;
    case TextureShape::kCubemapLayered:
      return object.layers / 6;
    default:
      return 0;
  }
}

// In the order in which the manual lists them: wrap, mirror, clamp_ogl, clamp_to_edge,
// clamp_to_border.
uint32_t AddressModeNumber(AddressMode mode) {
  switch (mode) {
    case AddressMode::kWrap:
      return 0;
    case AddressMode::kMirror:
      return 1;
    case AddressMode::kClamp:
      return 3;
    case AddressMode::kBorder:
      return 4;
  }
  return 0;
}

uint32_t Extent(const TextureState& object, TextureAttribute attribute, uint32_t level) {
  if (level >= object.level_count) return 0;
  const TextureLevel& found = object.levels[level];
  if (attribute == kAttributeWidth) return found.width;
  return attribute == kAttributeHeight ? found.height : found.depth;
}

}  // namespace

uint32_t QueryTexture(const TextureState& object, TextureAttribute attribute, uint32_t level) {
  switch (attribute) {
    case kAttributeWidth:
    case kAttributeHeight:
    case kAttributeDepth:
      return Extent(object, attribute, level);
    case kAttributeChannelDataType:
      return DataType(object);
    case kAttributeChannelOrder:
      return ChannelOrder(object);
    case kAttributeNormalizedCoordinates:
      return object.normalized_coordinates ? 1 : 0;
    case kAttributeArraySize:
      return ArraySize(object);
    case kAttributeLevels:
      return object.level_count > 1 ? object.level_count : 0;
    case kAttributeFilterMode:
      return object.linear_filter ? 1 : 0;
    case kAttributeAddressMode0:
    case kAttributeAddressMode1:
    case kAttributeAddressMode2:
      return AddressModeNumber(object.address[attribute - kAttributeAddressMode0]);
    case kAttributeSamples:
    case kAttributeForceUnnormalized:
    case kAttributeMemoryLayout:
      return 0;  // no multisampling, no separate samplers, and surfaces are arrays only
  }
  return 0;
}

}  // namespace rgpu::emu
