#include "rgpu_common/native/wire/text.h"

#include <algorithm>
#include <cstdint>

namespace rgpu::wire {
namespace {

bool IsTail(uint8_t byte) { return (byte & 0xC0U) == 0x80U; }

// The length of the UTF-8 sequence at `p`. 0: the bytes are malformed by the Unicode standard's
// table (surrogates, overlong forms, values above U+10FFFF).
size_t SequenceBytes(const uint8_t* p, size_t left) {
  const uint8_t first = p[0];
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const size_t size = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (left < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if (!IsTail(p[i])) return 0;
  }
  const uint8_t second = p[1];
  if (first == 0xE0 && second < 0xA0) return 0;
  if (first == 0xED && second > 0x9F) return 0;
  if (first == 0xF0 && second < 0x90) return 0;
  if (first == 0xF4 && second > 0x8F) return 0;
  return size;
}

// True for control characters, also U+0080 to U+009F: some of these start a terminal's command.
bool IsControl(const uint8_t* p, size_t size) {
  return size == 1 ? p[0] < 0x20 || p[0] == 0x7F : size == 2 && p[0] == 0xC2 && p[1] < 0xA0;
}

}  // namespace

bool IsCleanText(std::string_view text) {
  const auto* p = reinterpret_cast<const uint8_t*>(text.data());
  for (size_t i = 0; i < text.size();) {
    const size_t size = SequenceBytes(p + i, text.size() - i);
    if (size == 0 || IsControl(p + i, size)) return false;
    i += size;
  }
  return true;
}

std::string CleanText(std::string_view text, uint32_t max_bytes) {
  const auto* p = reinterpret_cast<const uint8_t*>(text.data());
  std::string clean;
  for (size_t i = 0; i < text.size();) {
    const size_t size = SequenceBytes(p + i, text.size() - i);
    const bool bad = size == 0 || IsControl(p + i, size);
    const size_t step = std::max<size_t>(size, 1);
    if (clean.size() + (bad ? 1 : step) > max_bytes) break;
    clean.append(bad ? std::string_view("?") : text.substr(i, step));
    i += step;
  }
  return clean;
}

}  // namespace rgpu::wire
