// Versions of structures: the size, and the version in the highest byte.
#pragma once

namespace rgpu::nvml {

template <typename Struct>
constexpr unsigned VersionOf(unsigned version) {
  return static_cast<unsigned>(sizeof(Struct)) | version << 24U;
}

}  // namespace rgpu::nvml
