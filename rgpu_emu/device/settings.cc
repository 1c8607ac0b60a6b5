#include "rgpu_emu/device/settings.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace rgpu::emu {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kSmallestBand = uint64_t{64} << 20;

bool ParseNumber(const char* text, uint64_t* out, const char** end) {
  if (*text < '0' || *text > '9') return false;
  char* stop = nullptr;
  errno = 0;
  *out = std::strtoull(text, &stop, 0);
  *end = stop;
  return errno == 0;
}

bool ReadBand(Settings* out, std::string* why) {
  const char* text = std::getenv("RGPU_EMU_BAND");
  if (text == nullptr || *text == '\0') return true;
  const char* end = text;
  uint64_t base = 0;
  uint64_t bytes = 0;
  const bool good = ParseNumber(text, &base, &end) && *end == ':' &&
                    ParseNumber(end + 1, &bytes, &end) && *end == '\0' && base % kPage == 0 &&
                    bytes % kPage == 0 && bytes >= kSmallestBand && base >= kPage &&
                    base + bytes > base;
  if (!good) {
    *why = std::string(
               "RGPU_EMU_BAND must be BASE:BYTES, multiples of 4096 and at least 64 MiB, e.g. "
               "0x200000000000:0x4000000000; it is ") +
           text;
    return false;
  }
  out->band_base = base;
  out->band_bytes = bytes;
  return true;
}

bool ReadMemory(Settings* out, std::string* why) {
  const char* text = std::getenv("RGPU_EMU_MEMORY");
  if (text == nullptr || *text == '\0') return true;
  const char* end = text;
  uint64_t bytes = 0;
  if (!ParseNumber(text, &bytes, &end) || *end != '\0' || bytes < kPage) {
    *why = std::string("RGPU_EMU_MEMORY must be a number of bytes (at least 4096); it is ") + text;
    return false;
  }
  out->memory_bytes = bytes / kPage * kPage;
  return true;
}

bool ReadOrdinal(Settings* out, std::string* why) {
  const char* text = std::getenv("RGPU_EMU_ORDINAL");
  if (text == nullptr || *text == '\0') return true;
  const char* end = text;
  if (ParseNumber(text, &out->ordinal, &end) && *end == '\0') return true;
  *why = std::string("RGPU_EMU_ORDINAL must be the device's number; it is ") + text;
  return false;
}

bool ReadTiming(Settings* out, std::string* why) {
  const char* text = std::getenv("RGPU_EMU_TIMING");
  if (text == nullptr || *text == '\0' || std::strcmp(text, "normal") == 0) return true;
  const char* end = text;
  if (std::strcmp(text, "hostile") == 0) {
    out->hostile = true;
    return true;
  }
  if (std::strncmp(text, "hostile:", 8) == 0 && ParseNumber(text + 8, &out->hostile_seed, &end) &&
      *end == '\0') {
    out->hostile = true;
    return true;
  }
  *why = std::string("RGPU_EMU_TIMING must be normal, hostile or hostile:SEED; it is ") + text;
  return false;
}

}  // namespace

bool ReadSettings(Settings* out, std::string* why) {
  return ReadBand(out, why) && ReadMemory(out, why) && ReadOrdinal(out, why) &&
         ReadTiming(out, why);
}

}  // namespace rgpu::emu
