// rgpu-gateway: started by the daemon for its tls: addresses, and another one for its ucx: ones.
//
//   rgpu-gateway --control-fd N --door-fd N [--handshake-ms N] [--handshakes N]
//                [--connections N] --listen-fd N... --certificate FILE --key FILE
//                [--client-ca FILE] [--require-client-certificate] [--tenant-uri PREFIX]
//   rgpu-gateway --control-fd N --door-fd N [...] --ucx IP:PORT...
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "rgpu_common/native/base/log.h"
#include "rgpu_server/executor/sandbox.h"
#include "rgpu_server/gateway/gateway.h"
#include "rgpu_server/gateway/tls_terminal.h"
#include "rgpu_server/gateway/ucx_terminal.h"

namespace {

using rgpu::base::UniqueFd;

struct Options {
  int control_fd = -1;
  int door_fd = -1;  // to it go the clients, one descriptor in each message
  std::vector<int> listen_fds;
  std::vector<std::string> ucx;  // none: tls
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
    return false;
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
  return options->control_fd >= 0 && options->door_fd >= 0 &&
         options->listen_fds.empty() != options->ucx.empty();
}

// Three descriptors for each connection, and a few; UCX has some for each network device.
void RaiseFileLimit(unsigned int connections, bool ucx) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t wanted = (ucx ? 64ULL : 8ULL) * connections + 64;
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, wanted));
  setrlimit(RLIMIT_NOFILE, &limit);
}

int Refuse(const rgpu::gateway::Control& control, const std::string& why) {
  control.Say({"error", why});
  return 1;
}

// The daemon judges the report, and ends a gateway that it does not like.
void Confine(rgpu::exec::Gateway kind, const rgpu::gateway::Control& control) {
  control.Say({"isolation", rgpu::exec::EnterGatewaySandbox(kind)});
}

int ServeTls(const Options& options, const rgpu::gateway::Control& control) {
  std::string why;
  const rgpu::transport::tls::Api* api = rgpu::transport::tls::LoadOpenSsl(&why);
  if (api == nullptr) return Refuse(control, why);
  rgpu::gateway::TlsTerminal terminal(*api, options.tls);
  if (!terminal.Open(&why)) return Refuse(control, why);
  Confine(rgpu::exec::Gateway::kTls, control);
  control.Say({"ready"});
  std::vector<UniqueFd> listeners;
  for (const int fd : options.listen_fds) listeners.emplace_back(fd);
  rgpu::gateway::Gateway gateway(terminal, control, "tls", options.door_fd, options.limits);
  gateway.Run(std::move(listeners));
  return 0;
}

int ServeUcx(const Options& options, const rgpu::gateway::Control& control) {
  std::string why;
  const rgpu::transport::ucx::Engine* engine = rgpu::transport::ucx::LoadUcx(&why);
  if (engine == nullptr) return Refuse(control, why);
  Confine(rgpu::exec::Gateway::kUcx, control);
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
  rgpu::gateway::Gateway gateway(*terminal, control, "ucx", options.door_fd, options.limits);
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
  keep.push_back(options.control_fd);
  keep.push_back(options.door_fd);
  rgpu::exec::CloseOtherDescriptors(keep);
  const rgpu::gateway::Control control(options.control_fd);
  RaiseFileLimit(options.limits.connections, !options.ucx.empty());
  return options.ucx.empty() ? ServeTls(options, control) : ServeUcx(options, control);
}
