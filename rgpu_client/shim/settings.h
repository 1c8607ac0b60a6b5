// What the environment says about the session.
#pragma once

#include <cstdint>
#include <string>

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
  uint64_t memory_bytes = 0;
  int32_t device = -1;
  uint32_t share_request_ppm = 0;
  uint32_t share_limit_ppm = 0;
  std::string error;  // not empty: a variable is wrong, and this sentence says which
};

Settings ReadSettings();

// "2GiB", "512MiB", "64KiB", "1000000", "1.5GB" (powers of ten): bytes.  False: not a size.
bool ParseBytes(const std::string& text, uint64_t* bytes);
// "0.4": 400000.  False: not a number in (0, 1].
bool ParseFraction(const std::string& text, uint32_t* ppm);

}  // namespace rgpu::shim
