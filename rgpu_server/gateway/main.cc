// rgpu-gateway: started by the daemon for its tls: addresses, another one for its ucx: ones, and
// one for its grpc: and grpcs: ones.
//
//   rgpu-gateway --control-fd N --door-fd N [--handshake-ms N] [--handshakes N]
//                [--connections N] --listen-fd N... --certificate FILE --key FILE
//                [--client-ca FILE] [--require-client-certificate] [--tenant-uri PREFIX]
//   rgpu-gateway --control-fd N --door-fd N [...] --ucx IP:PORT...
//   rgpu-gateway --control-fd N --door-fd N [...] [--grpc-fd N]... [--grpcs-fd N --certificate ...]
//                [--calls N] [--windows-mib N] [--idle-ms N] [--ping-ms N] [--first-ms N]
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rgpu_common/native/base/log.h"
#include "rgpu_common/native/confine/sandbox.h"
#include "rgpu_server/gateway/door.h"
#include "rgpu_server/gateway/gateway.h"
#include "rgpu_server/gateway/http2/service.h"
#include "rgpu_server/gateway/http2/terminal.h"
#include "rgpu_server/gateway/relay_service.h"
#include "rgpu_server/gateway/tls_terminal.h"
#include "rgpu_server/gateway/ucx_terminal.h"

namespace {

using rgpu::base::UniqueFd;

struct Options {
  int control_fd = -1;
  int door_fd = -1;  // to it go the clients, one descriptor in each message
  std::vector<int> listen_fds;
  std::vector<std::string> ucx;
  std::vector<int> grpc_fds;
  std::vector<int> grpcs_fds;
  rgpu::gateway::http2::Patience patience;
  rgpu::gateway::http2::Bounds bounds;
  rgpu::gateway::TlsOptions tls;
  rgpu::gateway::Limits limits;
};

bool Number(const char* text, int* to) {
  char* end = nullptr;
  const long number = std::strtol(text, &end, 10);
  if (end == text || *end != '\0' || number < 0 || number > 1'000'000) return false;
  *to = static_cast<int>(number);
  return true;
}

bool SetGrpc(Options* options, std::string_view name, int number) {
  if (name == "--grpc-fd") {
    options->grpc_fds.push_back(number);
  } else if (name == "--grpcs-fd") {
    options->grpcs_fds.push_back(number);
  } else if (name == "--calls") {
    options->bounds.calls = static_cast<unsigned int>(number);
  } else if (name == "--windows-mib") {
    options->bounds.windows = static_cast<int64_t>(number) << 20;
  } else if (name == "--idle-ms") {
    options->patience.idle = number;
  } else if (name == "--ping-ms") {
    options->patience.ping = number;
  } else if (name == "--first-ms") {
    options->patience.first = number;
  } else {
    return false;
  }
  return true;
}

bool SetNumber(Options* options, std::string_view name, const char* value) {
  int number = 0;
  if (!Number(value, &number)) return false;
  if (name == "--control-fd") {
    options->control_fd = number;
  } else if (name == "--door-fd") {
    options->door_fd = number;
  } else if (name == "--listen-fd") {
    options->listen_fds.push_back(number);
  } else if (name == "--handshake-ms") {
    options->limits.handshake_ms = number;
  } else if (name == "--handshakes") {
    options->limits.handshakes = static_cast<unsigned int>(number);
  } else if (name == "--connections") {
    options->limits.connections = static_cast<unsigned int>(number);
  } else {
    return SetGrpc(options, name, number);
  }
  return true;
}

bool SetOption(Options* options, std::string_view name, const char* value) {
  if (value == nullptr) return false;
  if (name == "--certificate") {
    options->tls.certificate = value;
  } else if (name == "--key") {
    options->tls.key = value;
  } else if (name == "--client-ca") {
    options->tls.client_ca = value;
  } else if (name == "--ucx") {
    options->ucx.emplace_back(value);
  } else if (name == "--tenant-uri") {
    options->tls.tenant_is_uri = true;
    options->tls.uri_prefix = value;
  } else {
    return SetNumber(options, name, value);
  }
  return true;
}

bool ReadOptions(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--require-client-certificate") {
      options->tls.require_client_certificate = true;
    } else if (!SetOption(options, argv[i], i + 1 < argc ? argv[i + 1] : nullptr)) {
      return false;
    } else {
      ++i;
    }
  }
  options->patience.handshake = options->limits.handshake_ms;
  const int kinds = int{!options->listen_fds.empty()} + int{!options->ucx.empty()} +
                    int{!options->grpc_fds.empty() || !options->grpcs_fds.empty()};
  return options->control_fd >= 0 && options->door_fd >= 0 && kinds == 1;
}

// Some descriptors for each connection, one for each call, and a few; UCX has some for each network
// device.
void RaiseFileLimit(const Options& options) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t each = options.ucx.empty() ? 8 : 64;
  const rlim_t wanted = each * options.limits.connections + options.bounds.calls + 64;
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, wanted));
  setrlimit(RLIMIT_NOFILE, &limit);
}

int Refuse(const rgpu::gateway::Control& control, const std::string& why) {
  control.Say({"error", why});
  return 1;
}

// The daemon judges the report, and ends a gateway that it does not like.
void Confine(rgpu::confine::Gateway kind, const rgpu::gateway::Control& control) {
  control.Say({"isolation", rgpu::confine::EnterGatewaySandbox(kind)});
}

using rgpu::gateway::Door;
using rgpu::gateway::Figures;
using rgpu::gateway::Gateway;
using rgpu::gateway::RelayService;
using rgpu::gateway::TlsTerminal;

std::vector<UniqueFd> Owned(const std::vector<int>& fds) {
  std::vector<UniqueFd> owned;
  owned.reserve(fds.size());
  for (const int fd : fds) owned.emplace_back(fd);
  return owned;
}

// Null: `why`.
std::unique_ptr<TlsTerminal> OpenTls(const rgpu::gateway::TlsOptions& options, std::string* why) {
  const rgpu::transport::tls::Api* api = rgpu::transport::tls::LoadOpenSsl(why);
  if (api == nullptr) return nullptr;
  auto terminal = std::make_unique<TlsTerminal>(*api, options);
  return terminal->Open(why) ? std::move(terminal) : nullptr;
}

int ServeTls(const Options& options, const rgpu::gateway::Control& control) {
  std::string why;
  const auto terminal = OpenTls(options.tls, &why);
  if (terminal == nullptr) return Refuse(control, why);
  Confine(rgpu::confine::Gateway::kTls, control);
  control.Say({"ready"});
  const Door door(options.door_fd);
  Figures figures;
  RelayService service(door, &figures);
  Gateway gateway(*terminal, service, control, "tls", options.limits, &figures);
  gateway.Run(Owned(options.listen_fds));
  return 0;
}

int ServeGrpc(Options options, const rgpu::gateway::Control& control) {
  namespace http2 = rgpu::gateway::http2;
  std::string why;
  const http2::lib::Api* api = http2::lib::Load(&why);
  if (api == nullptr) return Refuse(control, why);
  std::unique_ptr<TlsTerminal> tls;
  options.tls.only_http2 = true;
  if (!options.grpcs_fds.empty()) {
    tls = OpenTls(options.tls, &why);
    if (tls == nullptr) return Refuse(control, why);
  }
  http2::HttpTerminal terminal(tls.get(), options.grpcs_fds);
  Confine(rgpu::confine::Gateway::kTls, control);
  control.Say({"ready"});
  const Door door(options.door_fd);
  Figures figures;
  http2::HttpService service(*api, door, &figures, options.patience, options.bounds);
  Gateway gateway(terminal, service, control, "grpc", options.limits, &figures);
  std::vector<UniqueFd> listeners = Owned(options.grpc_fds);
  for (const int fd : options.grpcs_fds) listeners.emplace_back(fd);
  gateway.Run(std::move(listeners));
  return 0;
}

int ServeUcx(const Options& options, const rgpu::gateway::Control& control) {
  std::string why;
  const rgpu::transport::ucx::Engine* engine = rgpu::transport::ucx::LoadUcx(&why);
  if (engine == nullptr) return Refuse(control, why);
  Confine(rgpu::confine::Gateway::kUcx, control);
  // Its thread may still be in UCX when this one leaves.
  auto* terminal = new rgpu::gateway::UcxTerminal(*engine);
  std::string ports;
  if (!terminal->Open(&why)) return Refuse(control, why);
  for (const std::string& address : options.ucx) {
    int port = 0;
    if (!terminal->Listen(address, &port, &why)) return Refuse(control, why);
    ports += (ports.empty() ? "" : " ") + std::to_string(port);
  }
  control.Say({"ready", ports});
  std::vector<UniqueFd> doors;
  doors.push_back(terminal->door());
  const Door door(options.door_fd);
  Figures figures;
  RelayService service(door, &figures);
  Gateway gateway(*terminal, service, control, "ucx", options.limits, &figures);
  gateway.Run(std::move(doors));
  _exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  rgpu::base::StartLog("gateway");
  Options options;
  if (!ReadOptions(argc, argv, &options)) {
    std::fputs("rgpu-gateway is started by rgpu serve\n", stderr);
    return 2;
  }
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGINT, SIG_IGN);  // the terminal's are for the daemon
  std::signal(SIGHUP, SIG_IGN);
  std::vector<int> keep = options.listen_fds;
  keep.insert(keep.end(), options.grpc_fds.begin(), options.grpc_fds.end());
  keep.insert(keep.end(), options.grpcs_fds.begin(), options.grpcs_fds.end());
  keep.push_back(options.control_fd);
  keep.push_back(options.door_fd);
  rgpu::confine::CloseOtherDescriptors(keep);
  const rgpu::gateway::Control control(options.control_fd);
  RaiseFileLimit(options);
  if (!options.ucx.empty()) return ServeUcx(options, control);
  return options.listen_fds.empty() ? ServeGrpc(options, control) : ServeTls(options, control);
}
