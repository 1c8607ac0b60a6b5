// Connects to URIs. Each failure gives a sentence with the reason and the remedy.
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/base/fd.h"
#include "rgpu_common/native/transport/address.h"
#include "rgpu_common/native/transport/shm/shm_connection.h"
#include "rgpu_common/native/transport/socket_connection.h"
#include "rgpu_common/native/transport/tls/tls_connection.h"
#include "rgpu_common/native/transport/ucx/ucx_connection.h"

namespace rgpu::transport {
namespace {

using base::Deadline;
using base::UniqueFd;

std::string TcpSentence(int error, const std::string& address, int timeout_ms) {
  const std::string at = "the server at " + address;
  switch (error) {
    case ECONNREFUSED:
      return "nothing listens at " + address + ": start 'rgpu serve --listen " + address +
             "' there, or correct the address (--server or RGPU_SERVER)";
    case ETIMEDOUT:
      return at + " did not answer within " + std::to_string(timeout_ms / 1000) +
             " s: check the address, and that firewalls let this port through";
    case ENETUNREACH:
    case EHOSTUNREACH:
    case EADDRNOTAVAIL:
      return "there is no route to " + address + ": check the address and this container's network";
    default:
      return at + " cannot be reached (" + base::ErrnoText(error) +
             "): check the address and the network";
  }
}

// True if the socket is connected to itself, which can happen when nobody listens on a port in this
// machine's ephemeral range.
bool IsSelf(int fd) {
  sockaddr_storage here{};
  sockaddr_storage there{};
  socklen_t here_size = sizeof here;
  socklen_t there_size = sizeof there;
  return getsockname(fd, reinterpret_cast<sockaddr*>(&here), &here_size) == 0 &&
         getpeername(fd, reinterpret_cast<sockaddr*>(&there), &there_size) == 0 &&
         here_size == there_size && std::memcmp(&here, &there, here_size) == 0;
}

// Waits for a connect in progress. Returns 0 or an errno.
int FinishConnect(int fd, const Deadline& deadline) {
  for (;;) {
    pollfd wait{fd, POLLOUT, 0};
    const int ready = poll(&wait, 1, deadline.left_ms());
    if (ready == 0) return ETIMEDOUT;
    if (ready < 0 && errno != EINTR) return errno;
    if (ready > 0) break;
  }
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error;
}

// The send buffer of a Unix socket, as far as the system allows it. A full buffer costs a wake-up
// at both ends.
constexpr int kUnixSendBytes = 1 << 20;

struct Known {
  sockaddr_storage address{};
  socklen_t bytes = 0;
};

// The addresses to which names led last. Never destroyed, because threads of the shim may connect
// while the process ends. No thread waits for the lock, because a forked child may inherit it
// locked.
class KnownAddresses {
 public:
  static KnownAddresses& Get() {
    static auto& known = *new KnownAddresses;
    return known;
  }

  Known Find(const std::string& name) const {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return {};
    const auto found = known_.find(name);
    return found == known_.end() ? Known{} : found->second;
  }

  void Learn(const std::string& name, int fd) {
    Known known;
    known.bytes = sizeof known.address;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&known.address), &known.bytes) != 0) return;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return;
    if (known_.size() < kMost || known_.contains(name)) known_[name] = known;
  }

 private:
  static constexpr size_t kMost = 256;
  mutable std::mutex mutex_;
  std::map<std::string, Known> known_;
};

int ConnectOne(const sockaddr* to, socklen_t bytes, const Deadline& deadline, UniqueFd* out) {
  UniqueFd fd(socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
  if (!fd.valid()) return errno;
  int error = connect(fd.get(), to, bytes) == 0 ? 0 : errno;
  if (error == EINPROGRESS || error == EINTR) error = FinishConnect(fd.get(), deadline);
  if (error == 0 && IsSelf(fd.get())) error = ECONNREFUSED;
  if (error == 0) *out = std::move(fd);
  return error;
}

std::unique_ptr<Connection> Own(UniqueFd fd, const ConnectOptions& options, ConnectError* why) {
  std::unique_ptr<Connection> connection = Adopt(fd.release(), options);
  if (connection != nullptr) return connection;
  return NotConnected(why, EMFILE,
                      "no descriptor is left for the connection: raise the limit of open files "
                      "(ulimit -n)");
}

}  // namespace

std::unique_ptr<Connection> ConnectTcp(const std::string& address, const ConnectOptions& options,
                                       ConnectError* why) {
  const Known known = options.known_first ? KnownAddresses::Get().Find(address) : Known{};
  if (known.bytes != 0) {
    UniqueFd fd;
    const Deadline half(options.timeout_ms < 0 ? -1 : options.timeout_ms / 2);
    const auto* to = reinterpret_cast<const sockaddr*>(&known.address);
    if (ConnectOne(to, known.bytes, half, &fd) == 0) return Own(std::move(fd), options, why);
  }
  const auto list = Resolve(address, why);
  const addrinfo* found = list.get();
  if (found == nullptr) return nullptr;
  const Deadline all(options.timeout_ms);
  int left = 0;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) ++left;
  int error = EHOSTUNREACH;
  for (const addrinfo* at = found; at != nullptr && !all.passed(); at = at->ai_next, --left) {
    // A dead address gets only its part of the time, so that the others can be tried.
    const int rest = all.left_ms();
    UniqueFd fd;
    error = ConnectOne(at->ai_addr, at->ai_addrlen, Deadline(rest < 0 ? -1 : rest / left), &fd);
    if (error != 0) continue;
    KnownAddresses::Get().Learn(address, fd.get());
    return Own(std::move(fd), options, why);
  }
  return NotConnected(why, error, TcpSentence(error, address, options.timeout_ms));
}

std::unique_ptr<Connection> ConnectUnix(const std::string& address, const ConnectOptions& options,
                                        ConnectError* why) {
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  if (address.empty() || address.front() != '/') {
    return NotConnected(why, 0, NoAddressSentence("unix:" + address));
  }
  if (address.size() >= sizeof to.sun_path) {
    return NotConnected(why, ENAMETOOLONG,
                        "the socket path " + address + " is longer than the " +
                            std::to_string(sizeof to.sun_path - 1) +
                            " bytes allowed: use a shorter one");
  }
  std::memcpy(to.sun_path, address.c_str(), address.size() + 1);
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDBUF, &kUnixSendBytes, sizeof kUnixSendBytes);
  // A full backlog blocks connect; the send timeout bounds that.
  const timeval limit{options.timeout_ms / 1000, (options.timeout_ms % 1000) * 1000L};
  if (options.timeout_ms > 0) setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  int error = 0;
  do {
    error = connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error == 0) {
    const timeval none{0, 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &none, sizeof none);
    return Own(std::move(fd), options, why);
  }
  if (error == ENOENT || error == ECONNREFUSED) {
    return NotConnected(why, error,
                        "no server listens at unix:" + address +
                            ": start 'rgpu serve --listen unix:" + address +
                            "', or mount its directory into this container");
  }
  if (error == EACCES) {
    return NotConnected(
        why, error,
        "this user may not open " + address + ": give it write permission on the socket");
  }
  return NotConnected(why, error,
                      "unix:" + address + " cannot be opened (" +
                          base::ErrnoText(error == EAGAIN ? ETIMEDOUT : error) +
                          "): check that the server there is alive");
}

// With TLS 1.3 the server may refuse the client's certificate after the client's handshake has
// ended, so the reason arrives as a lost connection.
std::string Remedy(const std::string& reason) {
  if (reason.find("certificate required") != std::string::npos) {
    return "; name your certificate and its key in RGPU_TLS_CERT and RGPU_TLS_KEY";
  }
  if (reason.find("certificate expired") != std::string::npos) {
    return "; that is the one in RGPU_TLS_CERT: have a new one made";
  }
  if (reason.find("unknown ca") != std::string::npos ||
      reason.find("alert bad certificate") != std::string::npos) {
    return "; the server does not trust the certificate in RGPU_TLS_CERT: ask its operator for one";
  }
  return {};
}

std::unique_ptr<Connection> NeedsAgent(const std::string& address, const ConnectOptions&,
                                       ConnectError* why) {
  return NotConnected(
      why, EPROTONOSUPPORT,
      "a program reaches grpc: and grpcs: through an agent: start it with 'rgpu run', call "
      "rgpu_client.connect(), or run 'rgpu agent --server grpc:" +
          address + " --listen unix:/PATH' and set RGPU_SERVER=unix:/PATH");
}

const std::vector<Scheme>& Schemes() {
  // Never destroyed, because threads of the shim may connect while the process ends.
  static const auto& schemes = *new std::vector<Scheme>{
      {"unix", &ConnectUnix},          {"shm", &ConnectShm},
      {"tcp", &ConnectTcp, true},      {"tls", &tls::ConnectTls, true},
      {"ucx", &ucx::ConnectUcx, true}, {"grpc", &NeedsAgent},
      {"grpcs", &NeedsAgent},
  };
  return schemes;
}

std::unique_ptr<Connection> Connect(const std::string& uri, const ConnectOptions& options,
                                    ConnectError* why) {
  if (HoldsSecret(uri)) return NotConnected(why, 0, kSecretSentence);
  for (const Scheme& scheme : Schemes()) {
    const std::string prefix = std::string(scheme.name) + ":";
    if (!uri.starts_with(prefix)) continue;
    const std::string rest = uri.substr(prefix.size());
    if (scheme.connect != nullptr) {
      return scheme.connect(scheme.has_port ? Completed(rest) : rest, options, why);
    }
    return NotConnected(why, EPROTONOSUPPORT,
                        "the transport " + prefix +
                            " is not in this release: use unix:/PATH on one host, HOST:PORT or "
                            "tls:HOST:PORT between hosts");
  }
  return ConnectTcp(Completed(uri), options, why);
}

bool IsAddress(const std::string& uri) {
  if (HoldsSecret(uri)) return false;
  for (const Scheme& scheme : Schemes()) {
    const std::string prefix = std::string(scheme.name) + ":";
    if (!uri.starts_with(prefix)) continue;
    const std::string rest = uri.substr(prefix.size());
    HostPort ignored;
    if (scheme.connect == nullptr || scheme.connect == &NeedsAgent) return false;
    if (prefix != "unix:" && prefix != "shm:") return Split(rest, false, &ignored);
    return rest.starts_with('/') && rest.size() < sizeof(sockaddr_un::sun_path);
  }
  HostPort ignored;
  return Split(uri, false, &ignored);
}

void Retire(int timeout_ms) { tls::Retire(timeout_ms); }

}  // namespace rgpu::transport
