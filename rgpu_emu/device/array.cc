#include "rgpu_emu/device/array.h"

#include "rgpu_emu/device/attributes.h"
#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/reason.h"

namespace rgpu::emu {
namespace {

constexpr unsigned kOtherUses =
    CUDA_ARRAY3D_DEPTH_TEXTURE | CUDA_ARRAY3D_COLOR_ATTACHMENT | CUDA_ARRAY3D_VIDEO_ENCODE_DECODE;

// The attributes that limit an array. 0: no such dimension, or the same limit as for the width.
struct Limits {
  unsigned width;
  unsigned height;
  unsigned depth;
};

#define LIMIT(name) CU_DEVICE_ATTRIBUTE_MAXIMUM_##name

Limits TextureLimits(const CUDA_ARRAY3D_DESCRIPTOR& shape, bool mipmapped) {
  const bool layered = (shape.Flags & CUDA_ARRAY3D_LAYERED) != 0;
  if ((shape.Flags & CUDA_ARRAY3D_CUBEMAP) != 0) {
    return layered ? Limits{LIMIT(TEXTURECUBEMAP_LAYERED_WIDTH), 0,
                            LIMIT(TEXTURECUBEMAP_LAYERED_LAYERS)}
                   : Limits{LIMIT(TEXTURECUBEMAP_WIDTH), 0, 0};
  }
  if (layered && shape.Height == 0) {
    return {LIMIT(TEXTURE1D_LAYERED_WIDTH), 0, LIMIT(TEXTURE1D_LAYERED_LAYERS)};
  }
  if (layered) {
    return {LIMIT(TEXTURE2D_LAYERED_WIDTH), LIMIT(TEXTURE2D_LAYERED_HEIGHT),
            LIMIT(TEXTURE2D_LAYERED_LAYERS)};
  }
  if (shape.Depth != 0) {
    return {LIMIT(TEXTURE3D_WIDTH), LIMIT(TEXTURE3D_HEIGHT), LIMIT(TEXTURE3D_DEPTH)};
  }
  if (shape.Height == 0) {
    return {mipmapped ? LIMIT(TEXTURE1D_MIPMAPPED_WIDTH) : LIMIT(TEXTURE1D_WIDTH), 0, 0};
  }
  if ((shape.Flags & CUDA_ARRAY3D_TEXTURE_GATHER) != 0) {
    return {LIMIT(TEXTURE2D_GATHER_WIDTH), LIMIT(TEXTURE2D_GATHER_HEIGHT), 0};
  }
  return mipmapped ? Limits{LIMIT(TEXTURE2D_MIPMAPPED_WIDTH), LIMIT(TEXTURE2D_MIPMAPPED_HEIGHT), 0}
                   : Limits{LIMIT(TEXTURE2D_WIDTH), LIMIT(TEXTURE2D_HEIGHT), 0};
}

Limits SurfaceLimits(const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  const bool layered = (shape.Flags & CUDA_ARRAY3D_LAYERED) != 0;
  if ((shape.Flags & CUDA_ARRAY3D_CUBEMAP) != 0) {
    return layered ? Limits{LIMIT(SURFACECUBEMAP_LAYERED_WIDTH), 0,
                            LIMIT(SURFACECUBEMAP_LAYERED_LAYERS)}
                   : Limits{LIMIT(SURFACECUBEMAP_WIDTH), 0, 0};
  }
  if (layered && shape.Height == 0) {
    return {LIMIT(SURFACE1D_LAYERED_WIDTH), 0, LIMIT(SURFACE1D_LAYERED_LAYERS)};
  }
  if (layered) {
    return {LIMIT(SURFACE2D_LAYERED_WIDTH), LIMIT(SURFACE2D_LAYERED_HEIGHT),
            LIMIT(SURFACE2D_LAYERED_LAYERS)};
  }
  if (shape.Depth != 0) {
    return {LIMIT(SURFACE3D_WIDTH), LIMIT(SURFACE3D_HEIGHT), LIMIT(SURFACE3D_DEPTH)};
  }
  return shape.Height == 0 ? Limits{LIMIT(SURFACE1D_WIDTH), 0, 0}
                           : Limits{LIMIT(SURFACE2D_WIDTH), LIMIT(SURFACE2D_HEIGHT), 0};
}

constexpr Limits kTallTexture = {LIMIT(TEXTURE3D_WIDTH_ALTERNATE),
                                 LIMIT(TEXTURE3D_HEIGHT_ALTERNATE),
                                 LIMIT(TEXTURE3D_DEPTH_ALTERNATE)};

#undef LIMIT

bool Below(uint64_t size, unsigned attribute) {
  int most = 0;
  return attribute == 0 || (DeviceAttribute(static_cast<CUdevice_attribute>(attribute), &most) &&
                            size <= static_cast<uint64_t>(most));
}

bool Fits(const CUDA_ARRAY3D_DESCRIPTOR& shape, const Limits& limits) {
  return Below(shape.Width, limits.width) && Below(shape.Height, limits.height) &&
         Below(shape.Depth, limits.depth);
}

// A format of cuda.h of which the device has no arrays: compressed, or packed video.
bool IsOtherFormat(CUarray_format format) {
  return (format >= CU_AD_FORMAT_BC1_UNORM && format <= CU_AD_FORMAT_BC7_UNORM_SRGB) ||
         (format >= CU_AD_FORMAT_YUY2 && format <= CU_AD_FORMAT_Y410) ||
         format == CU_AD_FORMAT_Y416;
}

}  // namespace

CUresult CheckDeviceArray(const CUDA_ARRAY3D_DESCRIPTOR& shape, uint32_t levels) {
  const CUresult result = base::CheckArray(shape, levels);
  if (result == CUDA_ERROR_NOT_SUPPORTED) {
    NoteReason("the emulated device has no arrays that are sparse or mapped later");
  }
  if (result != CUDA_SUCCESS) return result;
  const bool texels = base::ElementBytes(shape.Format, shape.NumChannels) != 0 ||
                      !base::PlanesOf(shape.Format).empty();
  if (!texels && !IsOtherFormat(shape.Format)) return CUDA_ERROR_INVALID_VALUE;
  if (!texels || (shape.Flags & kOtherUses) != 0) {
    NoteReason(texels ? "the emulated device has no depth textures, attachments or video arrays"
                      : "the emulated device has no arrays of compressed or packed video formats");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const bool volume = shape.Depth != 0 && !base::IsLayered(shape);
  bool fits =
      Fits(shape, TextureLimits(shape, levels > 1)) || (volume && Fits(shape, kTallTexture));
  if ((shape.Flags & CUDA_ARRAY3D_SURFACE_LDST) != 0) fits &= Fits(shape, SurfaceLimits(shape));
  return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

ArrayRef FindArray(CUarray handle) { return TheDevice().arrays.Find(Raw(handle)); }

ArrayRef FindMipmappedArray(CUmipmappedArray handle) {
  return TheDevice().mipmapped_arrays.Find(Raw(handle));
}

void DropArrays(const Context& context, const Fences& after) {
  Device& device = TheDevice();
  const auto ours = [&](const Array& array) { return array.context == context.handle; };
  for (auto* table : {&device.arrays, &device.mipmapped_arrays}) {
    for (const ArrayRef& array : table->RemoveIf(ours)) {
      if (array->whole) device.limbo.Retire(array->memory, after);
    }
  }
}

}  // namespace rgpu::emu
