// netprobe-responder: answers probes on connections that it is given or accepts.
//
//   netprobe-responder --control-fd N ...    for a daemon: first sends it "isolation REPORT", then
//                                            gets connections over N until the daemon closes N
//   netprobe-responder --listen-fd N ...     for `netprobe listen`; runs until a signal
//
// Both: --server HEX --nonce HEX --host HEX (its identity) and --endpoint URI (any number).
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "netprobe/responder/confine.h"
#include "netprobe/responder/responder.h"
#include "rgpu_common/native/base/log.h"
#include "rgpu_common/native/confine/rights.h"
#include "rgpu_common/native/wire/text.h"

namespace {

using netprobe::Responder;
using rgpu::base::UniqueFd;

constexpr char kUsage[] =
    "usage: netprobe-responder (--control-fd N | --listen-fd N [--listen-fd N ...])\n"
    "                          --server HEX --nonce HEX --host HEX [--endpoint URI ...]\n";
constexpr size_t kMaxMessageBytes = 4096;
constexpr int kPauseMs = 50;

struct Options {
  int control_fd = -1;
  std::vector<int> listen_fds;
  rgpu::probe::Offer offer;
  netprobe::Bounds bounds;
};

template <size_t kSize>
bool ParseHex(const char* text, std::array<uint8_t, kSize>* out) {
  if (std::strlen(text) != 2 * kSize) return false;
  for (size_t i = 0; i < kSize; ++i) {
    unsigned int byte = 0;
    if (std::sscanf(text + 2 * i, "%2x", &byte) != 1) return false;
    (*out)[i] = static_cast<uint8_t>(byte);
  }
  return true;
}

std::optional<long> ParseNumber(const char* text) {
  char* end = nullptr;
  const long number = std::strtol(text, &end, 10);
  if (end == text || *end != '\0' || number < 0 || number > 1'000'000'000) return std::nullopt;
  return number;
}

bool SetNumber(Options* options, const char* name, const char* value) {
  const std::optional<long> number = ParseNumber(value);
  if (!number) return false;
  const auto word = static_cast<uint32_t>(*number);
  if (std::strcmp(name, "--control-fd") == 0) {
    options->control_fd = static_cast<int>(word);
  } else if (std::strcmp(name, "--listen-fd") == 0) {
    options->listen_fds.push_back(static_cast<int>(word));
  } else if (std::strcmp(name, "--places") == 0) {
    options->bounds.places = word;
  } else if (std::strcmp(name, "--places-per-peer") == 0) {
    options->bounds.places_per_peer = word;
  } else if (std::strcmp(name, "--idle-ms") == 0) {
    options->bounds.each.idle_ms = static_cast<int>(word);
  } else if (std::strcmp(name, "--time-ms") == 0) {
    options->bounds.each.time_ms = static_cast<int>(word);
  } else if (std::strcmp(name, "--burst") == 0) {
    options->bounds.burst_probes = word;
  } else if (std::strcmp(name, "--bytes-per-second") == 0) {
    options->bounds.SetRate(word);
  } else {
    return false;
  }
  return true;
}

bool SetOption(Options* options, const char* name, const char* value) {
  rgpu::probe::Offer& offer = options->offer;
  if (std::strcmp(name, "--server") == 0) return ParseHex(value, &offer.server);
  if (std::strcmp(name, "--nonce") == 0) return ParseHex(value, &offer.nonce);
  if (std::strcmp(name, "--host") == 0) return ParseHex(value, &offer.host);
  if (std::strcmp(name, "--endpoint") != 0) return SetNumber(options, name, value);
  if (offer.endpoints.size() >= rgpu::probe::kMaxEndpoints ||
      std::strlen(value) > rgpu::probe::kMaxUriBytes || !rgpu::wire::IsCleanText(value)) {
    return false;
  }
  offer.endpoints.emplace_back(value);
  return true;
}

bool ReadOptions(int argc, char** argv, Options* options) {
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!SetOption(options, argv[i], argv[i + 1])) return false;
  }
  return argc % 2 == 1 && (options->control_fd >= 0) != !options->listen_fds.empty();
}

std::string PeerName(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* from = nullptr;
  if (address.ss_family == AF_INET) {
    from = &reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  } else if (address.ss_family == AF_INET6) {
    from = &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  }
  if (from == nullptr || inet_ntop(address.ss_family, from, text.data(), text.size()) == nullptr) {
    return "local";
  }
  return text.data();
}

void Accept(int listener, Responder* responder) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  UniqueFd socket(accept4(listener, reinterpret_cast<sockaddr*>(&address), &size, SOCK_CLOEXEC));
  if (socket.valid()) {
    responder->Take(std::move(socket), PeerName(address), {});
  } else if (errno == EMFILE || errno == ENFILE) {
    poll(nullptr, 0, kPauseMs);  // wait: open connections end soon
  }
}

// Takes one connection from the daemon: the peer's name, the head that was read, and the
// descriptor. Returns false if the daemon has gone.
bool TakePassed(int control_fd, Responder* responder) {
  std::array<uint8_t, kMaxMessageBytes> message;
  std::vector<UniqueFd> fds;
  const ssize_t size = rgpu::base::RecvMessage(control_fd, message.data(), message.size(), &fds);
  if (size == 0) return false;
  if (size < 0) return errno == EAGAIN || errno == EMSGSIZE;
  rgpu::wire::Reader fields(message.data(), static_cast<size_t>(size));
  rgpu::wire::ByteView peer;
  rgpu::wire::ByteView head;
  fields.Get(&peer);
  fields.Get(&head);
  if (!fields.done() || head.size == 0 || fds.size() != 1) return true;
  responder->Take(std::move(fds[0]), std::string(peer.text()), {head.data, head.data + head.size});
  return true;
}

// Runs until the daemon has gone and the last probe is over.
int Run(const Options& options) {
  Responder responder(options.offer, options.bounds);
  std::vector<pollfd> waits = {{responder.ended_fd(), POLLIN, 0}, {options.control_fd, POLLIN, 0}};
  for (const int fd : options.listen_fds) waits.push_back({fd, POLLIN, 0});
  bool open = true;
  for (;;) {
    const int pause = responder.Sweep();
    if (!open && responder.active() == 0) return 0;
    if (poll(waits.data(), waits.size(), pause) < 0 && errno != EINTR) return 1;
    if (open && waits[1].revents != 0) open = TakePassed(options.control_fd, &responder);
    if (!open) waits[1].fd = -1;
    for (size_t i = 2; i < waits.size(); ++i) {
      if (waits[i].revents != 0) Accept(waits[i].fd, &responder);
    }
  }
}

// A daemon judges the report itself. `netprobe listen` has no daemon: then only a missing user of
// its own is accepted, since the user who starts it may not be able to change users.
bool SayIsolation(const Options& options, const std::string& report) {
  if (options.control_fd >= 0) {
    return rgpu::base::SendMessage(options.control_fd, ("isolation\t" + report).data(),
                                   report.size() + std::strlen("isolation\t"));
  }
  if (report.empty()) return true;
  const std::string own_user = std::string(rgpu::confine::kOwnUser) + ": ";
  const bool enough = report.starts_with(own_user) && report.find("; ") == std::string::npos;
  std::fprintf(stderr, "netprobe: %s (%s)\n",
               enough ? "the responder runs as root, without capabilities"
                      : "this system does not let the responder give up its privileges",
               report.c_str());
  return enough;
}

}  // namespace

int main(int argc, char** argv) {
  rgpu::base::StartLog("probe");
  Options options;
  if (!ReadOptions(argc, argv, &options)) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  std::signal(SIGPIPE, SIG_IGN);
  if (options.control_fd >= 0) std::signal(SIGINT, SIG_IGN);  // the daemon ends it
  for (const int fd : options.listen_fds) rgpu::base::SetNonBlocking(fd, true);
  const std::string report = netprobe::Confine();
  if (!SayIsolation(options, report)) return 1;
  return Run(options);
}
