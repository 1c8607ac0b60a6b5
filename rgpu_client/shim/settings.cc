#include "rgpu_client/shim/settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "gen/handshake.gen.h"
#include "rgpu_client/shim/program.h"
#include "rgpu_client/shim/tables/handles.h"
#include "rgpu_common/native/base/log.h"
#include "rgpu_common/native/base/text.h"
#include "rgpu_common/native/transport/transport.h"
#include "rgpu_common/native/wire/text.h"

namespace rgpu::shim {
namespace {

constexpr size_t kMostTokenFileBytes = 64U << 10;

std::string Get(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

std::string HostName() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

std::string Trimmed(std::string text) {
  constexpr const char* kBlank = " \t\r\n";
  text.erase(0, text.find_first_not_of(kBlank));
  text.erase(text.find_last_not_of(kBlank) + 1);
  return text;
}

// Returns the access token on the first line of the file that `variable` names, without the blanks
// and line ends around it.
std::string ReadAccessTokenFile(Settings* s, const std::string& path, const char* variable) {
  const std::string name = "the access token file " + path + " (" + variable + ") ";
  std::string text;
  if (!base::ReadText(path, kMostTokenFileBytes, &text)) {
    if (s->error.empty()) s->error = name + "cannot be read: " + strerror(errno);
    return {};
  }
  std::string access_token = Trimmed(text.substr(0, text.find('\n')));
  if (access_token.empty() && s->error.empty()) {
    s->error = name + "holds no access token in its first line";
  }
  return access_token;
}

void ReadAccessToken(Settings* s) {
  s->access_token = Get("RGPU_TOKEN");
  const std::string path = Get("RGPU_TOKEN_FILE");
  if (path.empty()) return;
  const std::string written = ReadAccessTokenFile(s, path, "RGPU_TOKEN_FILE");
  if (s->error.empty() && !s->access_token.empty() && Trimmed(s->access_token) != written) {
    s->error = "RGPU_TOKEN and the access token file " + path +
               " (RGPU_TOKEN_FILE) hold different access tokens: unset the variable that is wrong";
  }
  s->access_token = written;
}

void Complain(Settings* s, const char* name, const std::string& value, const char* form) {
  if (s->error.empty()) s->error = std::string(name) + "=" + value + " is not " + form;
}

// Reads the name of a lease or a tenant. A name that would have to be cut or cleaned is refused,
// because it could become the name of another lease or tenant.
std::string ReadName(Settings* s, const char* name) {
  std::string value = Get(name);
  if (value != wire::CleanText(value, wire::kMaxNameBytes)) {
    const std::string form =
        "1 to " + std::to_string(wire::kMaxNameBytes) + " printable characters";
    Complain(s, name, wire::CleanText(value, 80), form.c_str());
  }
  return value;
}

void ReadSizes(Settings* s) {
  if (const std::string v = Get("RGPU_MEMORY"); !v.empty() && !ParseMemory(v, &s->memory)) {
    Complain(s, "RGPU_MEMORY", v,
             "a size with its unit, such as 2GiB, 512Mi, 8vmem (of 256 MiB) or 25%");
  }
  constexpr const char* kShares = "a share such as 0.4, 40% or 40vcore, above 0 and at most 1";
  if (const std::string v = Get("RGPU_SHARE");
      !v.empty() && !ParseShare(v, &s->share_request_ppm)) {
    Complain(s, "RGPU_SHARE", v, kShares);
  }
  if (const std::string v = Get("RGPU_LIMIT"); !v.empty() && !ParseShare(v, &s->share_limit_ppm)) {
    Complain(s, "RGPU_LIMIT", v, kShares);
  }
}

void ReadWishes(Settings* s) {
  const auto wish = [s](wire::WishKey key, uint64_t value) {
    s->wishes.push_back({static_cast<uint16_t>(key), value});
  };
  if (s->memory.ppm != 0) wish(wire::WishKey::kMemoryPpm, s->memory.ppm);
  uint64_t value = 0;
  if (const std::string v = Get("RGPU_POLICY"); !v.empty()) {
    if (!ParsePolicy(v, &value)) Complain(s, "RGPU_POLICY", v, "fixed, burst, best-effort or none");
    wish(wire::WishKey::kPolicy, value);
  }
  if (const std::string v = Get("RGPU_PRIORITY"); !v.empty()) {
    if (!ParseWhole(v, 0, 100, &value)) Complain(s, "RGPU_PRIORITY", v, "a number from 0 to 100");
    wish(wire::WishKey::kPriority, value);
  }
  if (const std::string v = Get("RGPU_WEIGHT"); !v.empty()) {
    if (!ParseWhole(v, 1, 1000, &value)) Complain(s, "RGPU_WEIGHT", v, "a number from 1 to 1000");
    wish(wire::WishKey::kWeight, value);
  }
}

// A connection within one host ends only when one of its two processes ends.
bool IsLocal(const std::string& uri) { return uri.starts_with("unix:") || uri.starts_with("shm:"); }

// A session asks to be resumable, on a local socket only if a tunnel or an agent may change its
// path. RGPU_RESUME decides otherwise.
bool AsksToResume(Settings* s, const std::string& server, bool may_move) {
  const std::string v = Get("RGPU_RESUME");
  if (v == "1" || v == "0") return v == "1";
  if (!v.empty()) Complain(s, "RGPU_RESUME", v, "0 or 1");
  return !IsLocal(server) || may_move;
}

// Returns the sentence about a secret in an address behind `begin`. Inlined, GCC 12 warns wrongly
// of the bounds of the result.
[[gnu::noinline]] std::string WithSecret(const char* begin) {
  std::string said = begin;
  said += transport::kSecretSentence;
  return said;
}

void ReadPaths(Settings* s) {
  std::string wrong;
  for (const std::string& uri : base::Pieces(Get("RGPU_PATHS"), ';')) {
    if (transport::IsAddress(uri)) {
      s->paths.push_back(uri);
    } else if (wrong.empty()) {
      wrong = uri;
    }
  }
  if (transport::HoldsSecret(wrong)) {
    s->remarks.push_back(WithSecret("RGPU_PATHS: an address is ignored, because "));
  } else if (!wrong.empty()) {
    s->remarks.push_back("RGPU_PATHS: '" + wrong +
                         "' is not an address and is ignored; write HOST:PORT, tls:HOST:PORT, "
                         "ucx:HOST:PORT, unix:/PATH or shm:/PATH, with ';' between several");
  }
  s->agent = Get("RGPU_AGENT");
  const bool may_move = !s->paths.empty() || !s->agent.empty() || !Get("RGPU_TUNNEL").empty();
  s->resumable = AsksToResume(s, s->server, may_move);
}

// Compression is off unless RGPU_COMPRESSION=1. The connection measures whether it pays, but that
// has not been proved on every kind of network.
void ReadCompression(Settings* s) {
  const std::string v = Get("RGPU_COMPRESSION");
  if (!v.empty() && v != "0" && v != "1") Complain(s, "RGPU_COMPRESSION", v, "0 or 1");
  s->compression = v == "1";
}

void ReadMemoryCredit(Settings* s) {
  const std::string v = Get("RGPU_MEMORY_CREDIT");
  if (!v.empty() && v != "0" && v != "1") Complain(s, "RGPU_MEMORY_CREDIT", v, "0 or 1");
  s->memory_credit = v != "0";
}

// What stands behind the first '@' is the address of a server. A longer word before it is no
// number: it may be a user and a password.
bool HoldsSecretOfDevice(const std::string& entry) {
  constexpr size_t kMostDigits = 4;  // of a device's number, at most 1023
  const size_t at = entry.find('@');
  const bool has_server = at != std::string::npos && at <= kMostDigits;
  return transport::HoldsSecret(has_server ? entry.substr(at + 1) : entry);
}

void ReadDevice(Settings* s) {
  const std::string v = Get("RGPU_DEVICE");
  if (v.empty()) return;
  s->devices.clear();
  const auto entries = base::Pieces(v + (v.ends_with(',') ? "," : ""), ',');
  // Before any other complaint, because those repeat the whole list.
  if (std::ranges::any_of(entries, HoldsSecretOfDevice)) {
    if (s->error.empty()) s->error = WithSecret("RGPU_DEVICE: ");
    return;
  }
  for (const std::string& entry : entries) {
    const auto device = ParseDeviceName(entry);
    if (!device) {
      return Complain(s, "RGPU_DEVICE", v,
                      "a device number such as 0, or several such as 0,1 or 0,1@HOST:PORT");
    }
    if (std::ranges::find(s->devices, *device) != s->devices.end()) {
      return Complain(s, "RGPU_DEVICE", v, "a list in which each device stands once");
    }
    s->devices.push_back(*device);
  }
  if (s->devices.size() > kMostSessions) {
    Complain(s, "RGPU_DEVICE", v,
             ("at most " + std::to_string(kMostSessions) + " devices").c_str());
  }
  if (s->devices.size() > 1 && s->lease_key.empty() && s->error.empty()) {
    s->error =
        "RGPU_DEVICE names several devices, and each needs a lease: start the program with 'rgpu "
        "run --device " +
        v + " -- PROGRAM', or name the leases with RGPU_LEASE";
  }
}

// A server gets the access token of its file in RGPU_TOKEN_FILES, or else the one for all servers.
void ReadOthers(Settings* s) {
  const std::string routes = Get("RGPU_ROUTES");
  const std::string files = Get("RGPU_TOKEN_FILES");
  for (const DeviceName& device : s->devices) {
    const auto same = [&](const OtherServer& other) { return other.name == device.server; };
    if (device.server.empty() || std::ranges::any_of(s->others, same)) continue;
    OtherServer& other = s->others.emplace_back();
    other.name = device.server;
    other.route = RouteTo(other.name, routes);
    const Route& route = other.route;
    const bool may_move = !route.others.empty() || !route.agent.empty() || route.tunnelled;
    other.resumable = AsksToResume(s, route.uri, may_move);
    const std::string file = TokenFileOf(other.name, files);
    other.access_token =
        file.empty() ? s->access_token : ReadAccessTokenFile(s, file, "RGPU_TOKEN_FILES");
  }
}

}  // namespace

Settings ReadSettings() {
  Settings s;
  s.server = Get("RGPU_SERVER");
  s.lease_key = ReadName(&s, "RGPU_LEASE");
  s.tenant = ReadName(&s, "RGPU_TENANT");
  s.container = HostName();
  s.program = OwnProgramName();
  s.has_visible_devices = getenv("CUDA_VISIBLE_DEVICES") != nullptr;
  s.visible_devices = Get("CUDA_VISIBLE_DEVICES");
  s.launch_blocking = Get("CUDA_LAUNCH_BLOCKING") == "1";
  ReadAccessToken(&s);
  ReadSizes(&s);
  ReadWishes(&s);
  ReadDevice(&s);
  if (const std::string fault = base::LogLevelFault(); !fault.empty()) s.remarks.push_back(fault);
  ReadPaths(&s);
  ReadCompression(&s);
  ReadMemoryCredit(&s);
  ReadOthers(&s);
  return s;
}

bool Settings::uses_server() const {
  const auto here = [](const DeviceName& device) { return device.server.empty(); };
  return std::ranges::any_of(devices, here);
}

Settings SettingsOfDevice(const Settings& all, size_t place) {
  Settings one = all;
  const DeviceName& device = all.devices[place];
  one.device = device.number;
  if (place > 0) one.lease_key += "." + std::to_string(place);
  for (const OtherServer& other : all.others) {
    if (other.name != device.server) continue;
    one.server = other.route.uri;
    one.paths = other.route.others;
    one.agent = other.route.agent;
    one.access_token = other.access_token;
    one.resumable = other.resumable;
  }
  return one;
}

}  // namespace rgpu::shim
