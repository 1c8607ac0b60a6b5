// The server's end of `tls:`.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>

#include "rgpu_common/native/transport/tls/openssl.h"
#include "rgpu_common/native/transport/tls/tls_connection.h"
#include "rgpu_server/gateway/pem.h"
#include "rgpu_server/gateway/terminal.h"

namespace rgpu::gateway {

// Names of files, whose texts are in a Pem.
struct TlsOptions {
  std::string certificate;
  std::string key;
  std::string client_ca;  // empty: no certificates are asked for
  bool require_client_certificate = false;
  bool tenant_is_uri = false;  // else the subject's common name
  std::string uri_prefix;
  bool only_http2 = false;  // for `grpcs:`
};

class TlsTerminal final : public Terminal {
 public:
  TlsTerminal(const transport::tls::Api& api, TlsOptions options);

  // Opens and reads the files.  False: `why`.
  bool Open(std::string* why);
  bool Reload(std::vector<base::UniqueFd> files, std::string* why) override;
  std::unique_ptr<transport::Connection> Welcome(Arrival arrival, int timeout_ms,
                                                 wire::Preface* preface, Refusal* refusal) override;

 private:
  struct File {
    const std::string& path;
    const char* unreadable;
  };
  using Context = std::shared_ptr<transport::tls::Context>;

  std::array<File, 3> Files() const;
  Context Make(const Pem& pem, std::string* why) const;
  bool Configure(transport::tls::Context* context, const Pem& pem, std::string* why) const;
  Context Current();
  bool AgreedOnHttp2(transport::tls::Ssl* ssl) const;
  Refusal WhyNot(const transport::tls::TlsConnection& connection, bool timed_out) const;
  void Introduce(transport::tls::Ssl* ssl, wire::Preface* preface) const;
  std::string CommonName(transport::tls::Certificate* certificate) const;
  std::string Uri(transport::tls::Certificate* certificate) const;

  const transport::tls::Api& api_;
  const TlsOptions options_;
  std::mutex mutex_;
  Context context_;
};

}  // namespace rgpu::gateway
