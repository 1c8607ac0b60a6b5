// The server's end of `grpc:` and `grpcs:`: TCP, or TLS over it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rgpu_server/gateway/terminal.h"

namespace rgpu::gateway::http2 {

class HttpTerminal final : public Terminal {
 public:
  // tls: the terminal for connections that are accepted at one of `tls_doors`. Null if there are
  // none.
  HttpTerminal(Terminal* tls, std::vector<int> tls_doors)
      : tls_(tls), tls_doors_(std::move(tls_doors)) {}

  bool Reload(std::vector<base::UniqueFd> files, std::string* why) override;
  std::unique_ptr<transport::Connection> Welcome(Arrival arrival, int timeout_ms,
                                                 wire::Preface* preface, Refusal* refusal) override;

 private:
  Terminal* const tls_;
  const std::vector<int> tls_doors_;
};

}  // namespace rgpu::gateway::http2
