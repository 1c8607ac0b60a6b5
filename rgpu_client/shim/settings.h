// The settings of the session, read from the environment.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rgpu_client/shim/routes.h"
#include "rgpu_client/shim/units.h"
#include "rgpu_common/native/wire/fields.h"

namespace rgpu::shim {

// A server that RGPU_DEVICE names.
struct OtherServer {
  std::string name;
  Route route;
  std::string access_token;
  bool resumable = false;
};

// What helps with a server that is silent; rgpu_client/settings.py has the same words.
inline constexpr char kSilentRemedy[] =
    ": it is overloaded, or another program listens there; try `rgpu doctor`, and have its "
    "operator look at its log";

struct Settings {
  std::string server;  // empty: none configured
  std::string access_token;
  std::string lease_key;
  std::string tenant;
  std::string container;
  std::string program;
  std::string visible_devices;
  bool has_visible_devices = false;
  bool launch_blocking = false;  // CUDA_LAUNCH_BLOCKING=1: a launch returns when its work is done
  MemorySize memory;
  int32_t device = -1;                 // of one session
  std::vector<DeviceName> devices{1};  // one for each session
  std::vector<OtherServer> others;     // those that `devices` names
  uint32_t share_request_ppm = 0;
  uint32_t share_limit_ppm = 0;
  std::vector<wire::Wish> wishes;
  std::vector<std::string> paths;    // other paths to the server
  std::string agent;                 // the socket of `rgpu run`
  bool resumable = false;            // the session asks to survive cuts and to change paths
  bool compression = false;          // connections of resumable sessions may compress
  bool memory_credit = true;         // allocations may be placed without asking the worker
  std::string error;                 // not empty: a variable is wrong, and this sentence says which
  std::vector<std::string> remarks;  // a sentence for each wrong value that is ignored

  // True if a device is of the server that RGPU_SERVER names.
  bool uses_server() const;
};

Settings ReadSettings();

// The settings of the session of the device in place `place` of `all.devices`, with its server.
// Each device has a lease of its own: the first has the name `all.lease_key`, and the others
// NAME.1, NAME.2 ...
Settings SettingsOfDevice(const Settings& all, size_t place);

}  // namespace rgpu::shim
