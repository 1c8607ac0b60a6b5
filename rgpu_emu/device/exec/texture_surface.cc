// suld, sust and sured. Only the first level of a surface is accessed.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "rgpu_emu/device/exec/half_float.h"
#include "rgpu_emu/device/exec/texture_ops.h"
#include "rgpu_emu/device/exec/texture_place.h"

namespace rgpu::emu {
namespace {

// The place of an access. Null: it is outside the surface, and .zero was asked for.
struct Located {
  TextureFault fault;
  uint8_t* place;
};

// One axis of the place, as a number of elements of `size`. Returns false if it is outside.
bool Bound(int64_t* at, int64_t size, SurfaceOutside outside) {
  if (*at >= 0 && *at < size) return true;
  *at = std::clamp<int64_t>(*at, 0, size - 1);
  return outside == kOutsideClamp;
}

bool AddressesTexels(const TextureCall& call) {
  return call.op == kSurfaceStoreTexel || call.op == kSurfaceReduceTexel;
}

uint32_t AccessBytes(const TextureState& surface, const TextureCall& call) {
  return AddressesTexels(call) ? surface.texel_bytes : uint32_t{call.detail} * call.elements;
}

// The first coordinate counts bytes, or texels in sust.p and sured.p.
Located Locate(const TextureState& surface, const TextureCall& call) {
  const TextureLevel& level = surface.levels[0];
  const uint32_t bytes = AccessBytes(surface, call);
  int64_t column = static_cast<int32_t>(call.at[0]);
  if (!AddressesTexels(call)) {
    if (column % bytes != 0) return {TextureFault::kMisaligned, nullptr};
    column /= bytes;
  }
  const int64_t columns = int64_t{level.width} * surface.texel_bytes / bytes;
  int64_t row = 0;
  int64_t slice = 0;
  const unsigned axes = AxesOf(call.geometry);
  if (axes > 1) row = static_cast<int32_t>(call.at[1]);
  if (axes > 2) slice = static_cast<int32_t>(call.at[2]);
  if (call.geometry >= kGeometry1DArray) slice = call.layer;
  const int64_t slices = axes > 2 ? level.depth : surface.layers;
  bool inside = columns > 0 && Bound(&column, columns, call.outside);
  inside = Bound(&row, level.height, call.outside) && inside;
  inside = Bound(&slice, slices, call.outside) && inside;
  if (!inside) {
    const bool zero = call.outside == kOutsideZero;
    return {zero ? TextureFault::kNone : TextureFault::kOutside, nullptr};
  }
  const uint64_t address =
      surface.base + level.offset + static_cast<uint64_t>(slice) * level.slice_pitch +
      static_cast<uint64_t>(row) * level.row_pitch + static_cast<uint64_t>(column) * bytes;
  return {TextureFault::kNone, reinterpret_cast<uint8_t*>(address)};
}

template <typename T>
T Saturated(double value) {
  constexpr double kLeast = std::numeric_limits<T>::min();
  constexpr double kMost = std::numeric_limits<T>::max();
  return static_cast<T>(std::isnan(value) ? 0 : std::clamp(value, kLeast, kMost));
}

template <typename T>
void Store(uint8_t* to, T value) {
  std::memcpy(to, &value, sizeof(value));
}

// A word of the source is an unsigned or signed integer, or a float, as the format is. Integers
// are limited to those that the format has.
void StoreChannel(TexelType type, uint8_t* to, uint32_t word) {
  const double is_unsigned = word;
  const double is_signed = static_cast<int32_t>(word);
  switch (type) {
    case TexelType::kU8:
      return Store(to, Saturated<uint8_t>(is_unsigned));
    case TexelType::kU16:
      return Store(to, Saturated<uint16_t>(is_unsigned));
    case TexelType::kS8:
      return Store(to, Saturated<int8_t>(is_signed));
    case TexelType::kS16:
      return Store(to, Saturated<int16_t>(is_signed));
    case TexelType::kF16:
      return Store(to, HalfFromFloat(std::bit_cast<float>(word)));
    default:
      return Store(to, word);
  }
}

uint32_t Unorm(uint32_t word, uint32_t most) {
  const auto value = double{std::bit_cast<float>(word)};
  const double inside = value > 0 ? std::min(value, 1.0) : 0;  // NaN: 0
  return static_cast<uint32_t>(std::nearbyint(inside * most));
}

// Channels that the source lacks become 0.
void StoreTexel(const TextureState& surface, const uint32_t* words, uint8_t* to) {
  if (surface.type == TexelType::kUnorm1010102) {
    uint32_t packed = Unorm(words[3], 3) << 30;
    for (unsigned i = 0; i < 3; ++i) packed |= Unorm(words[i], 1023) << 10 * i;
    return Store(to, packed);
  }
  const unsigned bytes = surface.texel_bytes / std::max<unsigned>(surface.channels, 1);
  for (unsigned i = 0; i < surface.channels && i < 4; ++i)
    StoreChannel(surface.type, to + size_t{i} * bytes, words[i]);
}

template <typename T, typename S>
T Reduced(SurfaceReduction reduction, T old, T value) {
  switch (reduction) {
    case kReduceAdd:
      return static_cast<T>(old + value);
    case kReduceAnd:
      return old & value;
    case kReduceOr:
      return old | value;
    case kReduceMinUnsigned:
      return std::min(old, value);
    case kReduceMaxUnsigned:
      return std::max(old, value);
    case kReduceMinSigned:
      return static_cast<T>(std::min(static_cast<S>(old), static_cast<S>(value)));
    case kReduceMaxSigned:
      return static_cast<T>(std::max(static_cast<S>(old), static_cast<S>(value)));
  }
  return old;
}

template <typename T, typename S>
void Reduce(SurfaceReduction reduction, uint8_t* place, T value) {
  std::atomic_ref<T> element(*reinterpret_cast<T*>(place));
  T old = element.load(std::memory_order_relaxed);
  while (!element.compare_exchange_weak(old, Reduced<T, S>(reduction, old, value),
                                        std::memory_order_relaxed)) {
  }
}

// sured.p takes the type of the numbers from the surface's format.
SurfaceReduction ForFormat(const TextureState& surface, SurfaceReduction reduction) {
  if (surface.type != TexelType::kS32) return reduction;
  if (reduction == kReduceMinUnsigned) return kReduceMinSigned;
  return reduction == kReduceMaxUnsigned ? kReduceMaxSigned : reduction;
}

bool IsInteger32(TexelType type) { return type == TexelType::kU32 || type == TexelType::kS32; }

TextureFault RunReduction(const TextureState& surface, const TextureCall& call, uint8_t* place) {
  SurfaceReduction reduction = call.reduction;
  if (call.op == kSurfaceReduceTexel) {
    if (!IsInteger32(surface.type) || surface.texel_bytes != call.detail)
      return TextureFault::kFormat;
    reduction = ForFormat(surface, reduction);
  }
  if (call.detail == 8) {
    Reduce<uint64_t, int64_t>(reduction, place, call.data[0]);
  } else {
    Reduce<uint32_t, int32_t>(reduction, place, static_cast<uint32_t>(call.data[0]));
  }
  return TextureFault::kNone;
}

}  // namespace

TextureFault RunSurface(const TextureState& surface, TextureCall* call) {
  if (!FitsSurface(call->geometry, surface)) return TextureFault::kGeometry;
  const uint32_t bytes = AccessBytes(surface, *call);
  if (bytes == 0 || bytes > sizeof(call->data)) return TextureFault::kFormat;
  const Located located = Locate(surface, *call);
  if (call->op == kSurfaceLoad) std::memset(call->data, 0, sizeof(call->data));
  if (located.place == nullptr) return located.fault;
  switch (call->op) {
    case kSurfaceLoad:
      std::memcpy(call->data, located.place, bytes);
      return TextureFault::kNone;
    case kSurfaceStore:
      std::memcpy(located.place, call->data, bytes);
      return TextureFault::kNone;
    case kSurfaceStoreTexel: {
      uint32_t words[4];
      std::memcpy(words, call->data, sizeof(words));
      StoreTexel(surface, words, located.place);
      return TextureFault::kNone;
    }
    default:
      return RunReduction(surface, *call, located.place);
  }
}

}  // namespace rgpu::emu
