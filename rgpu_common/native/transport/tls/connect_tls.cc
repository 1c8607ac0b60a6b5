// The client's end of `tls:`: the certificates that it trusts, the certificate that it shows, and
// the sentences for failures.
#include <arpa/inet.h>
#include <errno.h>
#include <sys/stat.h>

#include <cstdlib>
#include <memory>
#include <mutex>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/transport/socket_connection.h"
#include "rgpu_common/native/transport/tls/tls_connection.h"

namespace rgpu::transport::tls {
namespace {

constexpr size_t kReadBufferBytes = 64U << 10;
constexpr unsigned char kProtocols[] = {4, 'r', 'g', 'p', 'u'};
// Documented results of OpenSSL's verification of a certificate.
constexpr long kVerifyExpired = 10;
constexpr long kVerifyNotYet = 9;
constexpr long kVerifyHost = 62;
constexpr long kVerifyAddress = 64;

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int NoPassword(char*, int, int, void*) { return 0; }

bool UseAuthorities(const Api& api, Context* context, std::string* why) {
  const std::string path = Variable("RGPU_TLS_CA");
  if (path.empty()) return api.SSL_CTX_set_default_verify_paths(context) == 1;
  struct stat facts{};
  const bool folder = stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
  if (api.SSL_CTX_load_verify_locations(context, folder ? nullptr : path.c_str(),
                                        folder ? path.c_str() : nullptr) == 1) {
    return true;
  }
  *why = path + " (RGPU_TLS_CA) holds no certificates that can be read: " + TakeError(api) +
         "; name the PEM file of the authority that signs the server's certificate";
  return false;
}

bool UseOwn(const Api& api, Context* context, std::string* why) {
  const std::string certificate = Variable("RGPU_TLS_CERT");
  std::string key = Variable("RGPU_TLS_KEY");
  if (certificate.empty()) return true;
  if (key.empty()) key = certificate;
  api.SSL_CTX_set_default_passwd_cb(context, &NoPassword);
  if (api.SSL_CTX_use_certificate_chain_file(context, certificate.c_str()) != 1) {
    *why = certificate + " (RGPU_TLS_CERT) holds no certificate that can be read: ";
  } else if (api.SSL_CTX_use_PrivateKey_file(context, key.c_str(), kPem) != 1) {
    *why = key + " (RGPU_TLS_KEY) is not the key of " + certificate +
           " (RGPU_TLS_CERT), or has a password: ";
  } else {
    return true;
  }
  *why += TakeError(api);
  return false;
}

Context* MakeContext(const Api& api, std::string* why) {
  api.ERR_clear_error();
  Context* context = api.SSL_CTX_new(api.TLS_client_method());
  api.SSL_CTX_ctrl(context, kCtrlMinVersion, kTls13, nullptr);
  api.SSL_CTX_ctrl(context, kCtrlMode, kPartialWrite | kMovingBuffer, nullptr);
  api.SSL_CTX_ctrl(context, kCtrlReadAhead, 1, nullptr);
  api.SSL_CTX_ctrl(context, kCtrlCacheMode, 0, nullptr);
  api.SSL_CTX_set_default_read_buffer_len(context, kReadBufferBytes);
  api.SSL_CTX_set_alpn_protos(context, kProtocols, sizeof kProtocols);
  api.SSL_CTX_set_verify(context, kVerifyPeer, nullptr);
  if (UseAuthorities(api, context, why) && UseOwn(api, context, why)) return context;
  api.SSL_CTX_free(context);
  return nullptr;
}

// What changes with the files that a context is made from. Kubernetes replaces the folder behind a
// symbolic link, so the file behind the path is another one then.
std::string FilesStamp() {
  std::string stamp;
  for (const char* name : {"RGPU_TLS_CA", "RGPU_TLS_CERT", "RGPU_TLS_KEY"}) {
    struct stat facts{};
    const std::string path = Variable(name);
    if (!path.empty()) stat(path.c_str(), &facts);
    stamp += path + '\n' + std::to_string(facts.st_ino) + ' ' + std::to_string(facts.st_size) +
             ' ' + std::to_string(facts.st_mtim.tv_sec) + '.' +
             std::to_string(facts.st_mtim.tv_nsec) + '\n';
  }
  return stamp;
}

using Shared = std::shared_ptr<Context>;

// The context of the connections of the process, so that certificates are read only when their
// files have changed. While the new files cannot be used, the context of the old ones serves on.
Shared SharedContext(const Api& api, std::string* why) {
  static auto* mutex = new std::mutex;
  static auto* context = new Shared;
  static auto* made_from = new std::string;
  const std::lock_guard lock(*mutex);
  const std::string stamp = FilesStamp();
  if (*context != nullptr && stamp == *made_from) return *context;
  Context* made = nullptr;
  if (const Use use; use) made = MakeContext(api, why);
  if (made == nullptr) return *context;
  // OpenSSL's connections hold references of their own.
  *context = Shared(made, [&api](Context* old) {
    if (const Use use; use) api.SSL_CTX_free(old);
  });
  *made_from = stamp;
  return *context;
}

std::string HostOf(const std::string& address) {
  std::string host = address.substr(0, address.rfind(':'));
  if (!host.empty() && host.front() == '[') host = host.substr(1, host.size() - 2);
  return host.substr(0, host.find('%'));
}

bool IsNumber(const std::string& host) {
  in6_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

// Returns the name that the server's certificate must be for. `certificate_name` in
// rgpu_common/endpoints.py has the same rule: servers whose addresses nobody knew when their
// certificate was made have a name in common, RGPU_TLS_NAME, and are reached by numbers.
std::string NameOf(const std::string& address) {
  const std::string host = HostOf(address);
  const std::string name = Variable("RGPU_TLS_NAME");
  return name.empty() || !IsNumber(host) ? host : name;
}

// Makes OpenSSL require that the server's certificate is for this host.
bool Expect(const Api& api, Ssl* ssl, const std::string& host) {
  if (IsNumber(host))
    return api.X509_VERIFY_PARAM_set1_ip_asc(api.SSL_get0_param(ssl), host.c_str()) == 1;
  return api.SSL_set1_host(ssl, host.c_str()) == 1 &&
         api.SSL_ctrl(ssl, kCtrlHostName, 0, const_cast<char*>(host.c_str())) == 1;
}

std::string Distrust(const Api& api, long verdict, const std::string& address) {
  const std::string at = "the certificate of the server at tls:" + address;
  if (verdict == kVerifyHost || verdict == kVerifyAddress) {
    const std::string name = NameOf(address);
    if (name != HostOf(address)) {
      return at + " is not for '" + name + "' (RGPU_TLS_NAME): have one made for this name, or " +
             "unset the variable if the certificate is for the address";
    }
    return at + " is not for '" + name +
           "': use a name that it is for (--server or RGPU_SERVER), or have one made for this name";
  }
  if (verdict == kVerifyExpired) return at + " has expired: its operator has to renew it";
  if (verdict == kVerifyNotYet) return at + " is not valid yet: check the clocks of both machines";
  return at + " is not trusted (" + api.X509_verify_cert_error_string(verdict) +
         "): name the authority that signed it in RGPU_TLS_CA";
}

std::string HandshakeSentence(const TlsConnection& connection, const Api& api,
                              const std::string& address) {
  if (const long verdict = connection.verify_result(); verdict != 0) {
    return Distrust(api, verdict, address);
  }
  const std::string reason = connection.LostReason();
  if (reason == "wrong version number" || reason == "packet length too long" ||
      reason == "unsupported protocol") {
    return "the program that listens at " + address +
           " does not speak TLS 1.3: leave tls: out, or use the port that the server lists with "
           "tls:";
  }
  if (reason.find("no application protocol") != std::string::npos) {
    return "the program that listens at " + address +
           " speaks TLS, but not rgpu's protocol inside it (" + reason +
           "): write grpcs: for a server's HTTP/2 or a proxy, or use another port";
  }
  return "the server at tls:" + address + " and this program do not agree on TLS 1.3 (" +
         (reason.empty() ? "it closed the connection" : reason) + "); see the server's log";
}

// Wraps `link` into a TLS connection whose handshake has not begun.
std::unique_ptr<TlsConnection> Wrap(const Api& api, Context* context, const std::string& address,
                                    std::unique_ptr<Connection> link, ConnectError* why) {
  const Use use;
  if (!use) {
    NotConnected(why, ECANCELED, "the program is ending");
    return nullptr;
  }
  Ssl* ssl = api.SSL_new(context);
  const bool expected = Expect(api, ssl, NameOf(address));
  api.SSL_set_connect_state(ssl);
  auto connection = std::make_unique<TlsConnection>(api, ssl, std::move(link), true);
  if (expected) return connection;
  NotConnected(why, 0, "'" + address + "' names no host that can have a certificate");
  return nullptr;
}

}  // namespace

std::unique_ptr<Connection> ConnectTls(const std::string& address, const ConnectOptions& options,
                                       ConnectError* why) {
  std::string sentence;
  const Api* api = LoadOpenSsl(&sentence);
  if (api == nullptr) return NotConnected(why, ENOSYS, sentence);
  const Shared context = SharedContext(*api, &sentence);
  if (context == nullptr) return NotConnected(why, EACCES, sentence);
  const base::Deadline deadline(options.timeout_ms);
  std::unique_ptr<Connection> link = ConnectTcp(address, options, why);
  if (link == nullptr) return nullptr;
  auto connection = Wrap(*api, context.get(), address, std::move(link), why);
  if (connection == nullptr) return nullptr;
  bool timed_out = false;
  if (connection->Handshake(deadline.left_ms(), &timed_out)) return connection;
  if (timed_out) {
    return NotConnected(why, ETIMEDOUT,
                        "the program that listens at " + address +
                            " does not answer as a TLS server within " +
                            std::to_string(options.timeout_ms / 1000) + " s: check the port");
  }
  return NotConnected(why, EPROTO, HandshakeSentence(*connection, *api, address));
}

}  // namespace rgpu::transport::tls
