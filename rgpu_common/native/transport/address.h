// Network addresses: HOST:PORT and [IPV6]:PORT.
#pragma once

#include <netdb.h>

#include <memory>
#include <string>

#include "rgpu_common/native/transport/transport.h"

namespace rgpu::transport {

// Resolves an address. Null: the address is malformed or cannot be resolved; `*why` says why.
// `may_be_zero` accepts port 0, which a listener may use.
std::unique_ptr<addrinfo, void (*)(addrinfo*)> Resolve(const std::string& address,
                                                       ConnectError* why, bool may_be_zero = false);

}  // namespace rgpu::transport
