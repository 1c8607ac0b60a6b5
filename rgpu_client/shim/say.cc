#include "rgpu_client/shim/say.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "rgpu_common/native/wire/text.h"

namespace rgpu::shim {

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
  // Part of the text comes from the server, or from an impostor, and must not control the terminal.
  size_t bytes = wire::CleanSentences(line.data(), static_cast<size_t>(length));
  line[bytes++] = '\n';
  [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, line.data(), bytes);
}

}  // namespace rgpu::shim
