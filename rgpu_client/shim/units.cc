#include "rgpu_client/shim/units.h"

#include <array>
#include <optional>
#include <string>

namespace rgpu::shim {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 62;
constexpr uint32_t kPpm = 1000000;
constexpr int kMaxDigits = 19;
// A bare number below this is hardly meant in bytes: no program runs in so little memory.
constexpr uint64_t kLeastBareBytes = 1000000;

struct Unit {
  std::string_view name;
  uint64_t factor;
  bool whole;  // only whole numbers of this unit are accepted
};
constexpr std::array<Unit, 25> kMemoryUnits = {{{"", 1, true},
                                                {"b", 1, true},
                                                {"B", 1, true},
                                                {"kb", 1000, false},
                                                {"mb", 1000000, false},
                                                {"gb", 1000000000, false},
                                                {"tb", 1000000000000, false},
                                                {"kib", uint64_t{1} << 10, false},
                                                {"mib", uint64_t{1} << 20, false},
                                                {"gib", uint64_t{1} << 30, false},
                                                {"tib", uint64_t{1} << 40, false},
                                                {"ki", uint64_t{1} << 10, false},
                                                {"mi", uint64_t{1} << 20, false},
                                                {"gi", uint64_t{1} << 30, false},
                                                {"ti", uint64_t{1} << 40, false},
                                                {"k", uint64_t{1} << 10, false},
                                                {"m", uint64_t{1} << 20, false},
                                                {"g", uint64_t{1} << 30, false},
                                                {"t", uint64_t{1} << 40, false},
                                                {"K", 1000, false},
                                                {"M", 1000000, false},
                                                {"G", 1000000000, false},
                                                {"T", 1000000000000, false},
                                                {"vmem", uint64_t{256} << 20, true},
                                                {"vcuda-memory", uint64_t{256} << 20, true}}};

// The number digits / scale, and the unit after it, in lower case unless it is one letter.
struct Quantity {
  uint64_t digits = 0;
  uint64_t scale = 1;
  std::string unit;
};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string_view Trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::optional<Quantity> Read(std::string_view text) {
  text = Trim(text);
  Quantity q;
  int digits = 0;
  const auto take = [&](bool fraction) {
    const size_t before = text.size();
    for (; !text.empty() && IsDigit(text.front()); text.remove_prefix(1)) {
      if (++digits > kMaxDigits) return false;
      q.digits = q.digits * 10 + static_cast<uint64_t>(text.front() - '0');
      if (fraction) q.scale *= 10;
    }
    return text.size() < before;
  };
  const bool starts_with_point = text.starts_with('.');
  if (!starts_with_point && !take(false)) return std::nullopt;
  if (!text.empty() && text.front() == '.') {
    text.remove_prefix(1);
    if (!take(true)) return std::nullopt;
  }
  text = Trim(text);
  for (const char c : text) {
    const bool upper = text.size() > 1 && c >= 'A' && c <= 'Z';
    q.unit += upper ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return q;
}

// Sets `*out` to digits * factor / scale. False: it exceeds `limit`.
bool Scale(const Quantity& q, uint64_t factor, uint64_t limit, uint64_t* out) {
  const uint64_t whole = q.digits / q.scale;
  const uint64_t rest = q.digits % q.scale;
  uint64_t product = 0;
  if (__builtin_mul_overflow(whole, factor, &product) || product > limit) return false;
  // The product of fraction (19 digits) and factor (40 bits) may overflow: drop low digits until it
  // does not.
  uint64_t part = 0;
  uint64_t left = rest;
  for (uint64_t f = factor, unit = q.scale; f != 0 && unit > 1 && left != 0;) {
    uint64_t exact = 0;
    if (!__builtin_mul_overflow(left, f, &exact)) {
      part = exact / unit;
      break;
    }
    left /= 10;  // digits far below one byte
    unit /= 10;
  }
  *out = product + part;
  return *out <= limit;
}

}  // namespace

bool ParseMemory(std::string_view text, MemorySize* size) {
  const std::optional<Quantity> q = Read(text);
  if (!q) return false;
  uint64_t value = 0;
  if (q->unit == "%") {
    if (!Scale(*q, kPpm / 100, kPpm, &value) || value == 0) return false;
    *size = {.bytes = 0, .ppm = static_cast<uint32_t>(value)};
    return true;
  }
  for (const Unit& unit : kMemoryUnits) {
    if (unit.name != q->unit) continue;
    if (unit.whole && q->digits % q->scale != 0) return false;
    if (!Scale(*q, unit.factor, kMaxBytes, &value) || value == 0) return false;
    if (unit.name.empty() && value < kLeastBareBytes) return false;
    *size = {.bytes = value, .ppm = 0};
    return true;
  }
  return false;
}

bool ParseShare(std::string_view text, uint32_t* ppm) {
  const std::optional<Quantity> q = Read(text);
  if (!q) return false;
  const bool cores = q->unit == "vcore" || q->unit == "vcuda-core";
  if (!cores && !q->unit.empty() && q->unit != "%") return false;
  if (cores && q->digits % q->scale != 0) return false;
  uint64_t value = 0;
  if (!Scale(*q, q->unit.empty() ? kPpm : kPpm / 100, kPpm, &value) || value == 0) return false;
  *ppm = static_cast<uint32_t>(value);
  return true;
}

bool ParseWhole(std::string_view text, uint64_t low, uint64_t high, uint64_t* number) {
  const std::optional<Quantity> q = Read(text);
  if (!q || !q->unit.empty() || q->scale != 1 || q->digits < low || q->digits > high) return false;
  *number = q->digits;
  return true;
}

bool ParsePolicy(std::string_view text, uint64_t* policy) {
  constexpr std::array<std::string_view, 4> kNames = {"none", "fixed", "burst", "best-effort"};
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] != text) continue;
    *policy = i;
    return true;
  }
  return false;
}

}  // namespace rgpu::shim
