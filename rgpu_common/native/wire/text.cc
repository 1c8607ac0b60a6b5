#include "rgpu_common/native/wire/text.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>

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

struct Range {
  uint32_t first;
  uint32_t last;
};

// Unicode's control characters (category Cc), format characters (Cf), and line and paragraph
// separators (Zl, Zp), as Unicode 15.1 lists them in DerivedGeneralCategory.txt. U+2065, U+E0000
// and U+E0002 to U+E001F are in the table too: they stand, unassigned, among format characters, and
// Unicode reserves them for characters that are not shown. Private and other unassigned characters
// are not in the table, because a later Unicode may assign letters or emoji to the latter.
constexpr Range kUnclean[] = {
    {0x0000, 0x001F},   {0x007F, 0x009F},   {0x00AD, 0x00AD},   {0x0600, 0x0605},
    {0x061C, 0x061C},   {0x06DD, 0x06DD},   {0x070F, 0x070F},   {0x0890, 0x0891},
    {0x08E2, 0x08E2},   {0x180E, 0x180E},   {0x200B, 0x200F},   {0x2028, 0x202E},
    {0x2060, 0x206F},   {0xFEFF, 0xFEFF},   {0xFFF9, 0xFFFB},   {0x110BD, 0x110BD},
    {0x110CD, 0x110CD}, {0x13430, 0x1343F}, {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A},
    {0xE0000, 0xE007F},
};

// The character of a sequence that is not malformed.
uint32_t Character(const uint8_t* p, size_t size) {
  if (size == 1) return p[0];
  uint32_t character = p[0] & (0x7FU >> size);
  for (size_t i = 1; i < size; ++i) character = character << 6 | (p[i] & 0x3FU);
  return character;
}

bool IsClean(uint32_t character) {
  return std::none_of(std::begin(kUnclean), std::end(kUnclean), [character](const Range& range) {
    return range.first <= character && character <= range.last;
  });
}

struct Step {
  size_t bytes;  // of malformed UTF-8: 1
  bool clean;
};

Step NextStep(const uint8_t* p, size_t left) {
  const size_t size = SequenceBytes(p, left);
  if (size == 0) return {1, false};
  return {size, IsClean(Character(p, size))};
}

}  // namespace

bool IsCleanText(std::string_view text) {
  const auto* p = reinterpret_cast<const uint8_t*>(text.data());
  for (size_t i = 0; i < text.size();) {
    const Step step = NextStep(p + i, text.size() - i);
    if (!step.clean) return false;
    i += step.bytes;
  }
  return true;
}

std::string CleanText(std::string_view text, uint32_t max_bytes) {
  const auto* p = reinterpret_cast<const uint8_t*>(text.data());
  std::string clean;
  for (size_t i = 0; i < text.size();) {
    const Step step = NextStep(p + i, text.size() - i);
    if (clean.size() + (step.clean ? step.bytes : 1) > max_bytes) break;
    clean.append(step.clean ? text.substr(i, step.bytes) : std::string_view("?"));
    i += step.bytes;
  }
  return clean;
}

size_t CleanSentences(char* text, size_t bytes) {
  const auto* p = reinterpret_cast<const uint8_t*>(text);
  size_t kept = 0;
  for (size_t i = 0; i < bytes;) {
    const Step step = NextStep(p + i, bytes - i);
    if (step.clean || text[i] == '\n' || text[i] == '\t') {
      std::memmove(text + kept, text + i, step.bytes);
      kept += step.bytes;
    } else {
      text[kept++] = '?';
    }
    i += step.bytes;
  }
  return kept;
}

}  // namespace rgpu::wire
