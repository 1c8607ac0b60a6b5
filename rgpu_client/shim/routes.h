// Servers besides that of RGPU_SERVER: what RGPU_DEVICE, RGPU_ROUTES and RGPU_TOKEN_FILES say about
// them. Pure: texts are arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rgpu::shim {

// A device that the program is to have: "1", or "1@b:7700".
struct DeviceName {
  int32_t number = -1;  // -1: any one of its server
  std::string server;   // as the user names it; empty: that of RGPU_SERVER

  bool operator==(const DeviceName&) const = default;
  std::string text() const;
};

// Nothing: the text is no device.
std::optional<DeviceName> ParseDeviceName(const std::string& text);

// How the program reaches a server that RGPU_DEVICE names. `rgpu run` has chosen it.
struct Route {
  std::string uri;
  std::vector<std::string> others;
  std::string agent;       // the socket of the path agent
  bool tunnelled = false;  // `uri` is the socket of an agent that carries the connections
};

// The route to `server` among lines of NAME;AGENT;TUNNEL;URI;URI... A server without a line is
// reached at its name.
Route RouteTo(const std::string& server, const std::string& lines);

// The file of `server` in a list of ADDRESS=FILE with ';' between them; empty: it has none there.
std::string TokenFileOf(const std::string& server, const std::string& list);

}  // namespace rgpu::shim
