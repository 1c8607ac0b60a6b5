#include "rgpu_client/shim/say.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace rgpu::shim {
namespace {

bool IsControl(unsigned char c) { return (c < ' ' && c != '\n' && c != '\t') || c == 0x7f; }

// Replaces control characters. Part of the text comes from the server, or from an impostor, and
// must not control the terminal.
void Disarm(char* text, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const unsigned char next = i + 1 < bytes ? static_cast<unsigned char>(text[i + 1]) : 0;
    // U+0080 to U+009F, two bytes in UTF-8, are control characters to some terminals.
    const bool eight_bit = c == 0xc2 && next >= 0x80 && next <= 0x9f;
    if (eight_bit) text[i + 1] = '?';
    if (eight_bit || IsControl(c)) text[i] = '?';
  }
}

}  // namespace

// Prints the line with one write, so that lines of several threads and processes do not mix.
void Say(const char* format, ...) {
  std::array<char, 2048> line;
  int length = snprintf(line.data(), line.size(), "rgpu: ");
  va_list arguments;
  va_start(arguments, format);
  const size_t room = line.size() - static_cast<size_t>(length) - 1;
  const int more = vsnprintf(line.data() + length, room, format, arguments);
  va_end(arguments);
  length += std::clamp(more, 0, static_cast<int>(room) - 1);
  Disarm(line.data(), static_cast<size_t>(length));
  line[static_cast<size_t>(length++)] = '\n';
  [[maybe_unused]] const ssize_t ignored =
      write(STDERR_FILENO, line.data(), static_cast<size_t>(length));
}

}  // namespace rgpu::shim
