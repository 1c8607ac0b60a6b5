#include "rgpu_server/gateway/door.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>

#include "rgpu_common/native/base/log.h"
#include "rgpu_common/native/transport/frame_io.h"
#include "rgpu_common/native/wire/frame.h"

namespace rgpu::gateway {
namespace {

// A large buffer: a full one costs a wake-up at both ends.
constexpr int kBufferBytes = 1 << 20;

// Sends the preface. A new pair of sockets has room for it.
bool Introduce(int socket, const wire::Preface& preface) {
  wire::FrameHeader header;
  header.kind = wire::Kind::kHandshake;
  header.opcode = static_cast<uint16_t>(wire::Handshake::kPreface);
  transport::FrameBuffer frame;
  wire::Writer head = frame.Begin(header);
  Put(head, preface);
  frame.End();
  return send(socket, frame.data(), frame.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(frame.size());
}

base::UniqueFd Pass(int door, const wire::Preface& preface) {
  std::array<int, 2> ends{-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return {};
  base::UniqueFd ours(ends[0]);
  const base::UniqueFd theirs(ends[1]);
  setsockopt(ours.get(), SOL_SOCKET, SO_SNDBUF, &kBufferBytes, sizeof kBufferBytes);
  const char word = 'c';
  if (!Introduce(ours.get(), preface)) return {};
  if (!base::SendMessage(door, &word, 1, {theirs.get()})) return {};
  return ours;
}

}  // namespace

Door::Door(int fd) : fd_(fd) {
  // If the daemon takes no clients, SendMessage blocks. This bounds the time.
  const timeval limit{kInnerTimeoutMs / 1000, 0};
  setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

bool Door::full() const {
  pollfd wait{fd_.get(), POLLOUT, 0};
  return poll(&wait, 1, 0) <= 0;
}

base::UniqueFd Door::Enter(const wire::Preface& preface) const {
  base::UniqueFd socket = Pass(fd_.get(), preface);
  if (!socket.valid()) {
    base::Log(base::Level::kError, "the server does not take the client: %s",
              base::ErrnoText(errno).c_str());
  }
  return socket;
}

}  // namespace rgpu::gateway
