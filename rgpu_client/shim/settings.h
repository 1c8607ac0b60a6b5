// What the environment says about the session.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rgpu_client/shim/units.h"
#include "rgpu_common/native/wire/fields.h"

namespace rgpu::shim {

struct Settings {
  std::string server;  // empty: none configured
  std::string token;
  std::string lease_key;
  std::string tenant;
  std::string container;
  std::string program;
  std::string visible_devices;
  bool has_visible_devices = false;
  MemorySize memory;
  int32_t device = -1;
  uint32_t share_request_ppm = 0;
  uint32_t share_limit_ppm = 0;
  std::vector<wire::Wish> wishes;
  std::vector<std::string> paths;    // other ways to the server
  std::string agent;                 // the socket of `rgpu run`
  bool resumable = false;            // the session is to survive a cut, or may move
  bool compression = false;          // its links may compress, which needs a resumable one
  std::string error;                 // not empty: a variable is wrong, and this sentence says which
  std::vector<std::string> remarks;  // what is wrong and was passed over, a sentence each
};

Settings ReadSettings();

}  // namespace rgpu::shim
