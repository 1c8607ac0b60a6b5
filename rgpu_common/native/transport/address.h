// Addresses of networks: HOST:PORT and [V6]:PORT.
#pragma once

#include <netdb.h>

#include <memory>
#include <string>

#include "rgpu_common/native/transport/transport.h"

namespace rgpu::transport {

// What an address may be.  Null, with `*why` filled, if it is none or cannot be resolved.
// may_be_zero: the port, for who listens.
std::unique_ptr<addrinfo, void (*)(addrinfo*)> Resolve(const std::string& address,
                                                       ConnectError* why, bool may_be_zero = false);

}  // namespace rgpu::transport
