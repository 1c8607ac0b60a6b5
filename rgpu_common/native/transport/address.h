// Network addresses: HOST:PORT and [IPV6]:PORT.
#pragma once

#include <netdb.h>

#include <memory>
#include <string>
#include <string_view>

#include "rgpu_common/native/transport/transport.h"

namespace rgpu::transport {

struct HostPort {
  std::string host;
  std::string port;
};

// Splits `host:port` or `[v6]:port`. False: the address has another form.
bool Split(const std::string& address, bool may_be_zero, HostPort* out);

// Adds the default port to a network address without one: `host` or `[v6]`.
std::string Completed(const std::string& address);

// The error for a text that is not an address. The text holds no secret (HoldsSecret).
std::string NoAddressSentence(const std::string& text);

// Resolves an address. Null: the address is malformed or cannot be resolved; `*why` says why.
// `may_be_zero` accepts port 0, which a listener may use.
std::unique_ptr<addrinfo, void (*)(addrinfo*)> Resolve(const std::string& address,
                                                       ConnectError* why, bool may_be_zero = false);

}  // namespace rgpu::transport
