#include "rgpu_client/shim/say.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace rgpu::shim {

// One write, so that lines of several threads and processes do not mix.
void Say(const char* format, ...) {
  std::array<char, 2048> line;
  int length = snprintf(line.data(), line.size(), "rgpu: ");
  va_list arguments;
  va_start(arguments, format);
  const size_t room = line.size() - static_cast<size_t>(length) - 1;
  const int more = vsnprintf(line.data() + length, room, format, arguments);
  va_end(arguments);
  length += std::clamp(more, 0, static_cast<int>(room) - 1);
  line[static_cast<size_t>(length++)] = '\n';
  [[maybe_unused]] const ssize_t ignored =
      write(STDERR_FILENO, line.data(), static_cast<size_t>(length));
}

}  // namespace rgpu::shim
