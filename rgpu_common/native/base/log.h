// The log: one line for each message on stderr, `rgpu NAME: text`. RGPU_LOG = off | error (default)
// | info | debug sets the level.
#pragma once

#include <string>

namespace rgpu::base {

enum class Level : int { kOff = -1, kError = 0, kInfo = 1, kDebug = 2 };

// Sets the name in front of each line, such as "shim". The string must never be freed.
void SetLogName(const char* name);
void SetLogLevel(Level level);
// Sets where lines go: the descriptor is not closed. It is stderr (2) at first.
void SetLogDescriptor(int fd);
// Sets the level from RGPU_LOG.
void SetLogLevelFromEnvironment();
// A sentence that names the fault if RGPU_LOG is not a level; only errors are logged then. Else
// empty.
std::string LogLevelFault();
// For the main function of a process: sets name and level, and logs a fault of RGPU_LOG.
void StartLog(const char* name);
bool LogOn(Level level);

// Writes a line with one write(2), so that lines of several processes do not mix. A line is cut at
// 1000 bytes.
void Log(Level level, const char* format, ...) __attribute__((format(printf, 2, 3)));

}  // namespace rgpu::base
