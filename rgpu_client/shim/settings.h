// The settings of the session, read from the environment.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rgpu_client/shim/units.h"
#include "rgpu_common/native/wire/fields.h"

namespace rgpu::shim {

struct Settings {
  std::string server;  // empty: none configured
  std::string access_token;
  std::string lease_key;
  std::string tenant;
  std::string container;
  std::string program;
  std::string visible_devices;
  bool has_visible_devices = false;
  MemorySize memory;
  int32_t device = -1;               // of one session
  std::vector<int32_t> devices{-1};  // one for each session
  uint32_t share_request_ppm = 0;
  uint32_t share_limit_ppm = 0;
  std::vector<wire::Wish> wishes;
  std::vector<std::string> paths;    // other paths to the server
  std::string agent;                 // the socket of `rgpu run`
  bool resumable = false;            // the session asks to survive cuts and to change paths
  bool compression = false;          // connections may compress; needs `resumable`
  bool memory_credit = true;         // allocations may be placed without asking the worker
  std::string error;                 // not empty: a variable is wrong, and this sentence says which
  std::vector<std::string> remarks;  // a sentence for each wrong value that is ignored
};

Settings ReadSettings();

// The settings of the session of the device in place `place` of `all.devices`. Each device has a
// lease of its own: the first has the name `all.lease_key`, and the others NAME.1, NAME.2 ...
Settings SettingsOfDevice(const Settings& all, size_t place);

}  // namespace rgpu::shim
