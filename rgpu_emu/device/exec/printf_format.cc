#include "rgpu_emu/device/exec/printf_format.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "gen/cuda_abi.gen.h"
#include "rgpu_emu/device/exec/fault_guard.h"

namespace rgpu::emu {
namespace {

constexpr int kMostWidth = 1024;

bool IsOneOf(char c, const char* set) { return c != 0 && std::strchr(set, c) != nullptr; }

class Formatter {
 public:
  Formatter(const DeviceReader& reader, uint64_t arguments, char* out, size_t room)
      : reader_(reader), arguments_(arguments), out_(out), room_(room) {}

  FormattedText Run(const char* format) {
    while (*format != 0) {
      if (*format != '%') {
        Append(format++, 1);
      } else {
        format = Conversion(format);
      }
    }
    return {used_, count_};
  }

 private:
  void Append(const char* text, size_t bytes) {
    bytes = std::min(bytes, room_ - used_);
    std::memcpy(out_ + used_, text, bytes);
    used_ += bytes;
  }
  // Counts what snprintf wrote. `bytes` is what it wanted to write; the text was cut at the room
  // left, which includes a zero byte.
  void Printed(int bytes) {
    if (bytes > 0 && room_ > used_)
      used_ += std::min(static_cast<size_t>(bytes), room_ - used_ - 1);
  }
  template <typename T>
  T Argument() {
    arguments_ = (arguments_ + sizeof(T) - 1) & ~(sizeof(T) - 1);
    T value;
    reader_.Copy(arguments_, &value, sizeof(T));
    arguments_ += sizeof(T);
    ++count_;
    return value;
  }
  int Number(const char** at) {
    if (**at == '*') {
      ++*at;
      return std::clamp(Argument<int32_t>(), -kMostWidth, kMostWidth);
    }
    int value = 0;
    for (; **at >= '0' && **at <= '9'; ++*at)
      value = std::min(value * 10 + (**at - '0'), kMostWidth);
    return value;
  }
  const char* Conversion(const char* start);
  bool Convert(char kind, int longs, int shorts);
  void Integer(char kind, int longs, int shorts);
  void String();

  const DeviceReader& reader_;
  uint64_t arguments_;
  char* out_;
  size_t room_;
  size_t used_ = 0;
  int32_t count_ = 0;
  char flags_[8] = {};
  int width_ = 0;
  int precision_ = -1;
};

// Handles %[flags][width][.precision][size]type. Anything else is printed unchanged, as on a GPU.
const char* Formatter::Conversion(const char* start) {
  const char* at = start + 1;
  if (*at == '%') {
    Append("%", 1);
    return at + 1;
  }
  size_t flags = 0;
  for (; IsOneOf(*at, "-+ #0"); ++at) {
    if (flags < 5 && std::strchr(flags_, *at) == nullptr) flags_[flags++] = *at;
  }
  flags_[flags] = 0;
  width_ = Number(&at);
  precision_ = -1;
  if (*at == '.') {
    ++at;
    precision_ = Number(&at);
  }
  int longs = 0;
  int shorts = 0;
  for (; IsOneOf(*at, "hlLqjzt"); ++at) {
    if (*at == 'h') {
      ++shorts;
    } else {
      ++longs;
    }
  }
  if (*at == 0 || !Convert(*at, longs, shorts))
    Append(start, static_cast<size_t>(at - start) + (*at != 0 ? 1 : 0));
  std::memset(flags_, 0, sizeof(flags_));
  return *at == 0 ? at : at + 1;
}

bool Formatter::Convert(char kind, int longs, int shorts) {
  char form[24];
  std::snprintf(form, sizeof(form), "%%%s*.*%c", flags_, kind);
  if (IsOneOf(kind, "diouxXc")) {
    Integer(kind, longs, shorts);
  } else if (IsOneOf(kind, "eEfFgGaA")) {
    Printed(
        std::snprintf(out_ + used_, room_ - used_, form, width_, precision_, Argument<double>()));
  } else if (kind == 's') {
    String();
  } else if (kind == 'p') {
    std::snprintf(form, sizeof(form), "%%%s*s", IsOneOf('-', flags_) ? "-" : "");
    char text[24];
    std::snprintf(text, sizeof(text), "0x%llx",
                  static_cast<unsigned long long>(Argument<uint64_t>()));
    Printed(std::snprintf(out_ + used_, room_ - used_, form, width_, text));
  } else {
    return false;
  }
  return true;
}

void Formatter::Integer(char kind, int longs, int shorts) {
  char form[24];
  if (kind == 'c') {
    std::snprintf(form, sizeof(form), "%%%s*c", flags_);
    Printed(std::snprintf(out_ + used_, room_ - used_, form, width_, Argument<int32_t>()));
    return;
  }
  const bool is_signed = kind == 'd' || kind == 'i';
  long long value = 0;
  if (longs > 0) {
    value = Argument<int64_t>();
  } else {
    const auto bits = Argument<uint32_t>();
    if (shorts >= 2) {
      value = is_signed ? static_cast<int8_t>(bits) : static_cast<uint8_t>(bits);
    } else if (shorts == 1) {
      value = is_signed ? static_cast<int16_t>(bits) : static_cast<uint16_t>(bits);
    } else {
      value = is_signed ? static_cast<long long>(static_cast<int32_t>(bits))
                        : static_cast<long long>(bits);
    }
  }
  std::snprintf(form, sizeof(form), "%%%s*.*ll%c", flags_, kind);
  Printed(std::snprintf(out_ + used_, room_ - used_, form, width_, precision_, value));
}

void Formatter::String() {
  char text[2048];
  const auto address = Argument<uint64_t>();
  if (address == 0) {
    std::strcpy(text, "(null)");
  } else {
    reader_.String(address, text, sizeof(text));
  }
  char form[24];
  std::snprintf(form, sizeof(form), "%%%s*.*s", IsOneOf('-', flags_) ? "-" : "");
  Printed(std::snprintf(out_ + used_, room_ - used_, form, width_, precision_, text));
}

}  // namespace

uint8_t DeviceReader::Byte(uint64_t address) const {
  if (address < base_ || address - base_ >= bytes_) LeaveGuarded(CUDA_ERROR_ILLEGAL_ADDRESS);
  return *reinterpret_cast<const volatile uint8_t*>(address);
}

void DeviceReader::Copy(uint64_t address, void* out, size_t bytes) const {
  for (size_t i = 0; i < bytes; ++i) static_cast<uint8_t*>(out)[i] = Byte(address + i);
}

size_t DeviceReader::String(uint64_t address, char* out, size_t room) const {
  size_t length = 0;
  while (length + 1 < room) {
    const uint8_t byte = Byte(address + length);
    if (byte == 0) break;
    out[length++] = static_cast<char>(byte);
  }
  out[length] = 0;
  return length;
}

FormattedText FormatDevice(const DeviceReader& reader, const char* format, uint64_t arguments,
                           char* out, size_t room) {
  return Formatter(reader, arguments, out, room).Run(format);
}

}  // namespace rgpu::emu
