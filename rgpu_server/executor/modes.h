// How a worker gets its session.
#pragma once

#include <functional>
#include <string>

#include "rgpu_server/executor/driver.h"
#include "rgpu_server/executor/session.h"

namespace rgpu::exec {

struct Options {
  std::string library;
  int control_fd = -1;        // the daemon's socket
  int serve_fd = -1;          // development: a connected client
  int control_lane_fd = -1;   // development: its control lane
  std::string listen;         // development: unix:/path or tcp:host:port
  uint64_t memory_bytes = 0;  // development: the lease's limit; 0: what the client asks for
  bool sandbox = true;
};

// Both return the exit status, or do not return at all: the process ends with its session, whatever
// its threads and the device are doing.
int RunForDaemon(const Options& options, const Driver& driver, const std::string& report);
int RunForDevelopment(const Options& options, const Driver& driver);

// Waits for the end of the session and forwards what kernels print meanwhile.  When `also_fd` (-1:
// none) is readable `on_readable` is called; it answers false when it is not to be asked again.
void WatchUntilEnd(Session& session, int also_fd, const std::function<bool()>& on_readable);

// The last act.
[[noreturn]] void Leave(Session& session);

}  // namespace rgpu::exec
