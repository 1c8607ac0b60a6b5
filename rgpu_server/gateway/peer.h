// Addresses of peers as text.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

namespace rgpu::gateway {

inline int PortOf(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET
                   ? reinterpret_cast<const sockaddr_in&>(address).sin_port
                   : reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
}

// "1.2.3.4:5" or "[::1]:5".
inline std::string PeerOf(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "?";
  const std::string port = ":" + std::to_string(PortOf(address));
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    return text + port;
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
  return "[" + std::string(text) + "]" + port;
}

// Without the port and the brackets.
inline std::string HostOf(const std::string& peer) {
  const std::string host = peer.substr(0, peer.rfind(':'));
  return host.starts_with('[') && host.ends_with(']') ? host.substr(1, host.size() - 2) : host;
}

}  // namespace rgpu::gateway
