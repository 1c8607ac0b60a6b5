#include "rgpu_common/native/base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <string>

namespace rgpu::base {
namespace {

std::atomic<const char*> log_name{"common"};
std::atomic<int> log_level{0};
std::atomic<int> log_descriptor{STDERR_FILENO};

// The value of RGPU_LOG in lower case.
std::string Asked() {
  const char* value = std::getenv("RGPU_LOG");
  std::string text = value == nullptr ? "" : value;
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

}  // namespace

void SetLogName(const char* name) { log_name = name; }
void SetLogLevel(Level level) { log_level = static_cast<int>(level); }
void SetLogDescriptor(int fd) { log_descriptor = fd; }

void SetLogLevelFromEnvironment() {
  const std::string text = Asked();
  SetLogLevel(text == "debug"  ? Level::kDebug
              : text == "info" ? Level::kInfo
              : text == "off"  ? Level::kOff
                               : Level::kError);
}

std::string LogLevelFault() {
  const std::string text = Asked();
  if (text.empty() || text == "off" || text == "error" || text == "info" || text == "debug") {
    return {};
  }
  return "RGPU_LOG=" + std::string(std::getenv("RGPU_LOG")) +
         " is not off, error, info or debug: it is ignored, and only errors are logged";
}

void StartLog(const char* name) {
  SetLogName(name);
  SetLogLevelFromEnvironment();
  if (const std::string fault = LogLevelFault(); !fault.empty()) {
    Log(Level::kError, "%s", fault.c_str());
  }
}

bool LogOn(Level level) {
  return static_cast<int>(level) <= log_level.load(std::memory_order_relaxed);
}

void Log(Level level, const char* format, ...) {
  if (!LogOn(level)) return;
  const int saved_errno = errno;
  std::array<char, 1000> line{};
  const size_t room = line.size() - 1;  // for the newline
  int used = snprintf(line.data(), room, "rgpu %s: ", log_name.load());
  size_t size = std::min(room - 1, static_cast<size_t>(std::max(used, 0)));
  va_list arguments;
  va_start(arguments, format);
  used = vsnprintf(line.data() + size, room - size, format, arguments);
  va_end(arguments);
  size = std::min(room - 1, size + static_cast<size_t>(std::max(used, 0)));
  line[size++] = '\n';
  ssize_t written = 0;
  do {
    written = write(log_descriptor, line.data(), size);
  } while (written < 0 && errno == EINTR);
  errno = saved_errno;
}

}  // namespace rgpu::base
