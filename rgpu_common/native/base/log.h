// One line per message on stderr, `rgpu NAME: text`.  RGPU_LOG = off | error (default) | info |
// debug.
#pragma once

#include <string>

namespace rgpu::base {

enum class Level : int { kOff = -1, kError = 0, kInfo = 1, kDebug = 2 };

// The name in front of each line, e.g. "shim"; a string that lives for ever.
void SetLogName(const char* name);
void SetLogLevel(Level level);
// Reads RGPU_LOG.
void SetLogLevelFromEnvironment();
// A sentence where RGPU_LOG is no level, so that errors alone are logged; else empty.
std::string LogLevelFault();
// For the main function of a process: all of these.
void StartLog(const char* name);
bool LogOn(Level level);

// Writes with one write(2), so that lines of several processes do not mix.  At most 1000 bytes.
void Log(Level level, const char* format, ...) __attribute__((format(printf, 2, 3)));

}  // namespace rgpu::base
