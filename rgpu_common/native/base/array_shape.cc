#include "rgpu_common/native/base/array_shape.h"

#include <algorithm>
#include <bit>

namespace rgpu::base {
namespace {

constexpr uint64_t kRowAlignment = 64;
constexpr uint64_t kPartAlignment = 512;
constexpr uint64_t kLargestArrayBytes = uint64_t{1} << 48;
constexpr uint32_t kUnknownElementBytes = 16;
constexpr unsigned kKnownFlags =
    CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP |
    CUDA_ARRAY3D_TEXTURE_GATHER | CUDA_ARRAY3D_DEPTH_TEXTURE | CUDA_ARRAY3D_COLOR_ATTACHMENT |
    CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING | CUDA_ARRAY3D_VIDEO_ENCODE_DECODE;

constexpr CUarray_format kByte = CU_AD_FORMAT_UNSIGNED_INT8;
constexpr CUarray_format kShort = CU_AD_FORMAT_UNSIGNED_INT16;

// Y, then U and V side by side, or each in a plane of its own.
constexpr PlaneForm kByte420[] = {{kByte, 1, 1, 1}, {kByte, 2, 2, 2}};
constexpr PlaneForm kShort420[] = {{kShort, 1, 1, 1}, {kShort, 2, 2, 2}};
constexpr PlaneForm kByte422[] = {{kByte, 1, 1, 1}, {kByte, 2, 2, 1}};
constexpr PlaneForm kShort422[] = {{kShort, 1, 1, 1}, {kShort, 2, 2, 1}};
constexpr PlaneForm kByte444[] = {{kByte, 1, 1, 1}, {kByte, 2, 1, 1}};
constexpr PlaneForm kShort444[] = {{kShort, 1, 1, 1}, {kShort, 2, 1, 1}};
constexpr PlaneForm kThreeBytes[] = {{kByte, 1, 1, 1}, {kByte, 1, 1, 1}, {kByte, 1, 1, 1}};
constexpr PlaneForm kThreeShorts[] = {{kShort, 1, 1, 1}, {kShort, 1, 1, 1}, {kShort, 1, 1, 1}};

// The bytes of a channel, and the channels that the format has. 0 channels: 1, 2 or 4.
struct Channel {
  uint32_t bytes;
  unsigned channels;
};

Channel ChannelOf(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return {1, 0};
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return {2, 0};
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return {4, 0};
    case CU_AD_FORMAT_UNORM_INT8X1:
    case CU_AD_FORMAT_SNORM_INT8X1:
      return {1, 1};
    case CU_AD_FORMAT_UNORM_INT8X2:
    case CU_AD_FORMAT_SNORM_INT8X2:
      return {1, 2};
    case CU_AD_FORMAT_UNORM_INT8X4:
    case CU_AD_FORMAT_SNORM_INT8X4:
    case CU_AD_FORMAT_UNORM_INT_101010_2:
      return {1, 4};
    case CU_AD_FORMAT_UNORM_INT16X1:
    case CU_AD_FORMAT_SNORM_INT16X1:
      return {2, 1};
    case CU_AD_FORMAT_UNORM_INT16X2:
    case CU_AD_FORMAT_SNORM_INT16X2:
      return {2, 2};
    case CU_AD_FORMAT_UNORM_INT16X4:
    case CU_AD_FORMAT_SNORM_INT16X4:
      return {2, 4};
    default:
      return {0, 0};
  }
}

uint64_t RoundedUp(uint64_t value, uint64_t step) { return (value + step - 1) / step * step; }

// Appends a part. False: the memory becomes too large.
bool Place(const CUDA_ARRAY3D_DESCRIPTOR& array, ArrayLayout* layout) {
  const uint32_t known = ElementBytes(array.Format, array.NumChannels);
  const uint64_t element = known != 0 ? known : kUnknownElementBytes;
  const uint64_t rows = std::max<uint64_t>(1, array.Height);
  const uint64_t slices = std::max<uint64_t>(1, array.Depth);
  ArrayPart& part = layout->parts[layout->count++];
  part.offset = RoundedUp(layout->bytes, kPartAlignment);
  if (array.Width > kLargestArrayBytes / element) return false;
  part.row_pitch = RoundedUp(array.Width * element, kRowAlignment);
  if (part.row_pitch > kLargestArrayBytes / rows) return false;
  part.slice_pitch = part.row_pitch * rows;
  if (part.slice_pitch > kLargestArrayBytes / slices) return false;
  layout->bytes = part.offset + part.slice_pitch * slices;
  return layout->bytes <= kLargestArrayBytes;
}

uint64_t Halved(uint64_t size, uint32_t level) {
  return size == 0 ? 0 : std::max<uint64_t>(1, size >> level);
}

}  // namespace

uint32_t ElementBytes(CUarray_format format, unsigned channels) {
  const Channel channel = ChannelOf(format);
  const bool fits = channel.channels == 0 ? channels == 1 || channels == 2 || channels == 4
                                          : channels == channel.channels;
  return fits ? channel.bytes * channels : 0;
}

std::span<const PlaneForm> PlanesOf(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_NV12:
      return kByte420;
    case CU_AD_FORMAT_P010:
    case CU_AD_FORMAT_P016:
      return kShort420;
    case CU_AD_FORMAT_NV16:
      return kByte422;
    case CU_AD_FORMAT_P210:
    case CU_AD_FORMAT_P216:
      return kShort422;
    case CU_AD_FORMAT_YUV444_8bit_SemiPlanar:
      return kByte444;
    case CU_AD_FORMAT_YUV444_16bit_SemiPlanar:
      return kShort444;
    case CU_AD_FORMAT_Y444_PLANAR8:
      return kThreeBytes;
    case CU_AD_FORMAT_Y444_PLANAR10:
      return kThreeShorts;
    default:
      return {};
  }
}

uint32_t MostLevels(const CUDA_ARRAY3D_DESCRIPTOR& array) {
  uint64_t size = std::max<uint64_t>(array.Width, array.Height);
  if (!IsLayered(array)) size = std::max<uint64_t>(size, array.Depth);
  return static_cast<uint32_t>(std::bit_width(std::min<uint64_t>(size, kLargestArrayBytes)));
}

CUresult CheckArray(const CUDA_ARRAY3D_DESCRIPTOR& array, unsigned levels) {
  const unsigned flags = array.Flags;
  if ((flags & ~kKnownFlags) != 0 || array.Width == 0) return CUDA_ERROR_INVALID_VALUE;
  if (levels == 0 || levels > MostLevels(array) || levels > kMaxArrayLevels) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // A depth without a height is for layers only.
  const bool layered = (flags & CUDA_ARRAY3D_LAYERED) != 0;
  if (layered ? array.Depth == 0 : array.Depth != 0 && array.Height == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if ((flags & CUDA_ARRAY3D_CUBEMAP) != 0) {
    const bool faces = layered ? array.Depth % 6 == 0 : array.Depth == 6;
    if (!faces || array.Width != array.Height) return CUDA_ERROR_INVALID_VALUE;
  }
  const bool plane = array.Height != 0 && array.Depth == 0;
  if ((flags & CUDA_ARRAY3D_TEXTURE_GATHER) != 0 && !plane) return CUDA_ERROR_INVALID_VALUE;
  for (const PlaneForm& form : PlanesOf(array.Format)) {
    const bool divides =
        array.Width % form.width_divisor == 0 && array.Height % form.height_divisor == 0;
    if (!divides || !plane || levels != 1) return CUDA_ERROR_INVALID_VALUE;
  }
  const bool later = (flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) != 0;
  return later ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUDA_ARRAY3D_DESCRIPTOR LevelOf(const CUDA_ARRAY3D_DESCRIPTOR& array, uint32_t level) {
  CUDA_ARRAY3D_DESCRIPTOR part = array;
  part.Width = Halved(array.Width, level);
  part.Height = Halved(array.Height, level);
  if (!IsLayered(array)) part.Depth = Halved(array.Depth, level);
  return part;
}

CUDA_ARRAY3D_DESCRIPTOR PlaneOf(const CUDA_ARRAY3D_DESCRIPTOR& array, uint32_t plane) {
  const PlaneForm& form = PlanesOf(array.Format)[plane];
  CUDA_ARRAY3D_DESCRIPTOR part = array;
  part.Width = array.Width / form.width_divisor;
  part.Height = array.Height / form.height_divisor;
  part.Format = form.format;
  part.NumChannels = form.channels;
  return part;
}

bool ExtentOf(const CUDA_ARRAY3D_DESCRIPTOR& array, ArrayExtent* extent) {
  extent->element_bytes = ElementBytes(array.Format, array.NumChannels);
  if (extent->element_bytes == 0 || array.Width > kLargestArrayBytes) return false;
  extent->row_bytes = array.Width * extent->element_bytes;
  extent->rows = std::max<uint64_t>(1, array.Height);
  extent->slices = std::max<uint64_t>(1, array.Depth);
  return true;
}

bool Holds(const ArrayExtent& extent, const ArrayBox& box) {
  const auto within = [](uint64_t at, uint64_t count, uint64_t size) {
    return at <= size && count <= size - at;
  };
  return box.x % extent.element_bytes == 0 && box.width % extent.element_bytes == 0 &&
         within(box.x, box.width, extent.row_bytes) && within(box.y, box.height, extent.rows) &&
         within(box.z, box.depth, extent.slices);
}

bool LayOut(const CUDA_ARRAY3D_DESCRIPTOR& array, uint32_t levels, ArrayLayout* layout) {
  *layout = {};
  const auto planes = static_cast<uint32_t>(PlanesOf(array.Format).size());
  if (planes == 0 && levels > kMaxArrayLevels) return false;
  for (uint32_t i = 0; i < (planes == 0 ? levels : planes); ++i) {
    if (!Place(planes == 0 ? LevelOf(array, i) : PlaneOf(array, i), layout)) return false;
  }
  return true;
}

}  // namespace rgpu::base
