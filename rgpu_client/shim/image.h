// Images arrive as a pointer without a length.  It is in their headers, and nothing here reads past
// the memory that is mapped.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rgpu::shim {

// What the server takes at most.
inline constexpr uint64_t kMaxImageBytes = 256U << 20;

struct Image {
  const uint8_t* data = nullptr;
  uint64_t bytes = 0;
};

// The bytes behind `image`: a fatbin wrapper's fatbin, a bare fatbin, an ELF file, a linked image
// of the emulated device, or PTX text with its final zero.  Nothing: it is none of these, or its
// headers do not fit the memory there.
std::optional<Image> MeasureImage(const void* image);

// A whole file of this machine.  0, or an errno.
int ReadImageFile(const char* path, std::vector<uint8_t>* bytes);

// How many of `bytes` from `address` on can be read, up to the first page that cannot.
uint64_t ReadableBytes(const void* address, uint64_t bytes);

}  // namespace rgpu::shim
