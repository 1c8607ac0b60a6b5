// The two ways in which a worker gets its session: from the daemon, or in development mode.
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
  int control_lane_fd = -1;   // development: the client's control lane
  std::string listen;         // development: unix:/path or tcp:host:port
  uint64_t memory_bytes = 0;  // development: the memory limit; 0: all of the device's
  uint64_t graph_nodes = 0;   // development: of all graphs; 0: kMaxSessionNodes
  bool sandbox = true;
};

// Both return the exit status. They do not return after a session: the process then ends by _exit.
int RunForDaemon(const Options& options, const Driver& driver, const std::string& report);
int RunForDevelopment(const Options& options, const Driver& driver);

// Waits for the end of the session and forwards what kernels print. Calls `on_readable` when
// `also_fd` (-1: none) is readable, until `on_readable` returns false.
void WatchUntilEnd(Session& session, int also_fd, const std::function<bool()>& on_readable);

// Sends the client's last messages and ends the process.
[[noreturn]] void Leave(Session& session);

}  // namespace rgpu::exec
