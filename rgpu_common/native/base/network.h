// What counts as one peer where something is shared out among strangers.
#pragma once

#include <string>

namespace rgpu::base {

// An IPv4 address, the /64 of an IPv6 address, of which one machine has as many as it likes, or
// what it was.
std::string NetworkOf(const std::string& address);

}  // namespace rgpu::base
