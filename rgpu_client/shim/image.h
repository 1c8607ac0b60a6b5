// Finds the length of an image, which a program passes as a pointer without a length. The length
// stands in the image's headers. No function here reads past mapped memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rgpu::shim {

// The largest image that the server accepts.
inline constexpr uint64_t kMaxImageBytes = 256U << 20;

struct Image {
  const uint8_t* data = nullptr;
  uint64_t bytes = 0;
};

// The bytes of `image`: the fatbin in a fatbin wrapper, a bare fatbin, an ELF file, a linked image
// of the emulated device, or PTX text with its final zero. Nullopt: the image is none of these, or
// the length in its headers exceeds the mapped memory, or it is longer than kMaxImageBytes.
// `too_long` says whether the last is so.
std::optional<Image> MeasureImage(const void* image, bool* too_long = nullptr);

// Reads a whole file of this machine and appends a zero byte. Returns 0 or an errno.
int ReadImageFile(const char* path, std::vector<uint8_t>* bytes);

// How many of the `bytes` from `address` on are readable: all, or those before the first unreadable
// page.
uint64_t ReadableBytes(const void* address, uint64_t bytes);

}  // namespace rgpu::shim
