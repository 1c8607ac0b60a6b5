#include "rgpu_client/shim/settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string_view>

namespace rgpu::shim {
namespace {

std::string Get(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

struct Unit {
  std::string_view name;
  double bytes;
};
constexpr std::array<Unit, 16> kUnits = {{{"", 1},
                                          {"B", 1},
                                          {"K", 1024.0},
                                          {"M", 1048576.0},
                                          {"G", 1073741824.0},
                                          {"T", 1099511627776.0},
                                          {"KiB", 1024.0},
                                          {"MiB", 1048576.0},
                                          {"GiB", 1073741824.0},
                                          {"TiB", 1099511627776.0},
                                          {"kB", 1e3},
                                          {"KB", 1e3},
                                          {"MB", 1e6},
                                          {"GB", 1e9},
                                          {"TB", 1e12},
                                          {"b", 1}}};

std::string HostName() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

// A token file holds one line.
bool ReadToken(const std::string& path, std::string* token) {
  std::ifstream file(path);
  return static_cast<bool>(std::getline(file, *token));
}

void Complain(Settings* s, const char* name, const std::string& value, const char* form) {
  if (s->error.empty()) s->error = std::string(name) + "=" + value + " is not " + form;
}

void ReadNumbers(Settings* s) {
  if (const std::string v = Get("RGPU_MEMORY"); !v.empty() && !ParseBytes(v, &s->memory_bytes)) {
    Complain(s, "RGPU_MEMORY", v, "a size such as 2GiB or 512MiB");
  }
  if (const std::string v = Get("RGPU_SHARE");
      !v.empty() && !ParseFraction(v, &s->share_request_ppm)) {
    Complain(s, "RGPU_SHARE", v, "a fraction such as 0.4");
  }
  if (const std::string v = Get("RGPU_LIMIT");
      !v.empty() && !ParseFraction(v, &s->share_limit_ppm)) {
    Complain(s, "RGPU_LIMIT", v, "a fraction such as 0.7");
  }
  if (const std::string v = Get("RGPU_DEVICE"); !v.empty()) {
    char* end = nullptr;
    const long number = strtol(v.c_str(), &end, 10);
    if (*end != '\0' || number < 0 || number > 1023) {
      Complain(s, "RGPU_DEVICE", v, "a device number such as 0");
    }
    s->device = static_cast<int32_t>(number);
  }
}

}  // namespace

bool ParseBytes(const std::string& text, uint64_t* bytes) {
  char* end = nullptr;
  errno = 0;
  const double number = strtod(text.c_str(), &end);
  if (end == text.c_str() || errno != 0 || !std::isfinite(number) || number < 0) return false;
  while (*end == ' ') ++end;
  for (const Unit& unit : kUnits) {
    if (unit.name != end) continue;
    const double product = number * unit.bytes;
    if (product >= 9.2e18) return false;
    *bytes = static_cast<uint64_t>(product);
    return true;
  }
  return false;
}

bool ParseFraction(const std::string& text, uint32_t* ppm) {
  char* end = nullptr;
  const double number = strtod(text.c_str(), &end);
  if (end == text.c_str() || *end != '\0' || !(number > 0.0) || number > 1.0) return false;
  *ppm = static_cast<uint32_t>(std::lround(number * 1e6));
  return true;
}

Settings ReadSettings() {
  Settings s;
  s.server = Get("RGPU_SERVER");
  s.lease_key = Get("RGPU_LEASE");
  s.tenant = Get("RGPU_TENANT");
  s.container = HostName();
  s.program = program_invocation_name;
  s.has_visible_devices = getenv("CUDA_VISIBLE_DEVICES") != nullptr;
  s.visible_devices = Get("CUDA_VISIBLE_DEVICES");
  s.token = Get("RGPU_TOKEN");
  if (const std::string path = Get("RGPU_TOKEN_FILE"); s.token.empty() && !path.empty()) {
    if (!ReadToken(path, &s.token)) {
      s.error = "the token file " + path + " (RGPU_TOKEN_FILE) cannot be read: " + strerror(errno);
    }
  }
  ReadNumbers(&s);
  return s;
}

}  // namespace rgpu::shim
