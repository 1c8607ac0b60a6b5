// Groups addresses into peers, for limits that hold for each peer.
#pragma once

#include <string>

namespace rgpu::base {

// The network that counts as one peer: an IPv4 address itself, or the /64 of an IPv6 address,
// because one machine can use every address of a /64. Any other text is returned unchanged.
std::string NetworkOf(const std::string& address);

}  // namespace rgpu::base
