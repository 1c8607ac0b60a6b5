#include "rgpu_server/gateway/terminal.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "rgpu_server/gateway/peer.h"

namespace rgpu::gateway {
namespace {

constexpr int kPauseMs = 50;

}  // namespace

base::UniqueFd Terminal::Accept(int door, std::string* peer) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  base::UniqueFd socket(
      accept4(door, reinterpret_cast<sockaddr*>(&address), &bytes, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.valid()) {
    *peer = PeerOf(address);
  } else if (errno != EAGAIN && errno != ECONNABORTED) {
    // Out of descriptors: the door stays open.
    poll(nullptr, 0, kPauseMs);
  }
  return socket;
}

}  // namespace rgpu::gateway
