#include "rgpu_common/native/transport/socket_connection.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "rgpu_common/native/base/clock.h"

namespace rgpu::transport {
namespace {

IoResult Failure() {
  switch (errno) {
    case EAGAIN:
#if EAGAIN != EWOULDBLOCK
    case EWOULDBLOCK:
#endif
      return {IoState::kWouldBlock, 0, 0};
    case EFAULT:
      return {IoState::kFault, 0, EFAULT};
    case EPIPE:
      return {IoState::kClosed, 0, 0};
    default:
      return {IoState::kFailed, 0, errno};
  }
}

void SetOption(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof value);
}

// The most unsent bytes in the kernel. They delay every later frame, so there should be few. On a
// long path there must be more: BBR takes a sender with an empty buffer for one with no more data,
// and does not learn the rate.
constexpr int kNotSentBytes = 128 << 10;
constexpr int kNotSentFarBytes = 256 << 10;
// A path with at least this round trip counts as long, not as a local network.
constexpr uint32_t kFarUs = 2000;

bool IsFar(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_rtt >= kFarUs;
}

bool SetCongestionControl(int fd, const char* name) {
  return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name,
                    static_cast<socklen_t>(std::strlen(name))) == 0;
}

// Chooses BBR on a long path, and loss-based control (cubic, reno) on a local network, where BBR's
// pacing costs up to a third of the bandwidth. On a long path, loss-based control slows down at
// each lost packet and fills the queues; BBR does neither. The first algorithm that this user may
// choose is taken.
void ChooseCongestionControl(int fd, bool far) {
  if (far && SetCongestionControl(fd, "bbr")) return;
  for (const char* name : {"cubic", "reno"}) {
    if (SetCongestionControl(fd, name)) return;
  }
}

// How long one receive blocks. The peer is checked between two receives.
int SliceMs(int dead_peer_ms) {
  return dead_peer_ms > 0 ? std::min(kRecvSliceMs, dead_peer_ms / 2 + 1) : kRecvSliceMs;
}

}  // namespace

void TuneTcp(int fd, const ConnectOptions& options) {
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  const int seconds = std::max(2, options.dead_peer_ms / 1000);
  const int idle = seconds / 2;
  const int interval = std::max(1, (seconds - idle) / 5);
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, idle);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, std::max(1, (seconds - idle) / interval));
  const bool far = IsFar(fd);
  ChooseCongestionControl(fd, far);
  SetOption(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, far ? kNotSentFarBytes : kNotSentBytes);
}

bool PeerIsDead(const tcp_info& info, int dead_peer_ms) {
  constexpr uint8_t kProbes = 3;
  return info.tcpi_last_ack_recv >= static_cast<uint32_t>(dead_peer_ms) &&
         (info.tcpi_unacked > 0 || info.tcpi_probes >= kProbes);
}

SocketConnection::SocketConnection(base::UniqueFd socket, base::UniqueFd wake, const char* kind,
                                   int dead_peer_ms)
    : socket_(socket.release()), wake_(wake.release()), kind_(kind), dead_peer_ms_(dead_peer_ms) {}

SocketConnection::~SocketConnection() {
  if (socket_ >= 0) close(socket_);
  if (wake_ >= 0) close(wake_);
}

IoResult SocketConnection::TrySend(const iovec* parts, int count) {
  if (closed_.load(std::memory_order_relaxed)) return Gone();
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = static_cast<size_t>(std::min(count, IOV_MAX));
  ssize_t sent = 0;
  do {
    sent = sendmsg(socket_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) return Failure();
  return {IoState::kDone, static_cast<size_t>(sent), 0};
}

IoResult SocketConnection::TryRecv(void* to, size_t bytes) {
  return Receive(to, bytes, MSG_DONTWAIT);
}

// Blocks in recv, which is one system call. A try, a poll and another try would be three.
IoResult SocketConnection::Recv(void* to, size_t bytes, int timeout_ms) {
  if (timeout_ms < 0) return RecvForSlice(to, bytes);
  const base::Deadline deadline(timeout_ms);
  while (deadline.left_ms() >= SliceMs(dead_peer_ms_)) {
    const IoResult result = RecvForSlice(to, bytes);
    if (result.state != IoState::kWouldBlock) return result;
  }
  return Connection::Recv(to, bytes, deadline.left_ms());
}

IoResult SocketConnection::RecvForSlice(void* to, size_t bytes) {
  const IoResult result = Receive(to, bytes, 0);
  // SO_RCVTIMEO has passed: check whether the peer is alive.
  if (result.state == IoState::kWouldBlock && dead_peer_ms_ > 0 && !CheckPeer()) return Gone();
  return result;
}

IoResult SocketConnection::Receive(void* to, size_t bytes, int flags) {
  if (closed_.load(std::memory_order_relaxed)) return Gone();
  ssize_t got = 0;
  do {
    got = recv(socket_, to, bytes, flags);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return Failure();
  if (got == 0) return {IoState::kClosed, 0, 0};
  return {IoState::kDone, static_cast<size_t>(got), 0};
}

IoResult SocketConnection::Gone() const {
  const int error = error_.load();
  return {error == 0 ? IoState::kClosed : IoState::kFailed, 0, error};
}

// False: the peer is dead. The connection is then shut down for all threads.
bool SocketConnection::CheckPeer() {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(socket_, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return true;
  if (!PeerIsDead(info, dead_peer_ms_)) return true;
  error_ = ETIMEDOUT;
  Shutdown();
  return false;
}

int SocketConnection::Wait(int events, int timeout_ms) {
  const int data = events & (kReadable | kWritable | kHangup);
  if (closed_.load(std::memory_order_relaxed) && data != 0) return data;
  const base::Deadline deadline(timeout_ms > 0 ? timeout_ms : -1);
  pollfd fds[2] = {{data != 0 ? socket_ : -1, static_cast<int16_t>(data), 0}, {wake_, POLLIN, 0}};
  const nfds_t count = (events & kWoken) != 0 ? 2 : 1;
  // A long wait is cut into slices, and the peer is checked between them.
  const int slice = dead_peer_ms_ > 0 && data != 0 ? dead_peer_ms_ / 2 + 1 : -1;
  for (int left = timeout_ms;;) {
    const bool cut = slice > 0 && (left < 0 || left > slice);
    const int ready = poll(fds, count, cut ? slice : left);
    if (ready > 0) break;
    if (ready == 0 && !cut) return 0;
    if (ready == 0 && !CheckPeer()) return data;
    if (ready < 0 && errno != EINTR) return data;  // bad descriptor: the next send or receive fails
    if (timeout_ms > 0) left = deadline.left_ms();
  }
  int result = fds[0].revents & data;
  if ((fds[0].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) result = data;
  if (count == 2 && fds[1].revents != 0) {
    uint64_t wakes = 0;
    // The read fails if another thread has taken this Wake.
    if (read(wake_, &wakes, sizeof wakes) == sizeof wakes) result |= kWoken;
  }
  return result;
}

void SocketConnection::Wake() {
  const uint64_t one = 1;
  ssize_t written = 0;
  do {
    written = write(wake_, &one, sizeof one);
  } while (written < 0 && errno == EINTR);
}

void SocketConnection::EndSending() { shutdown(socket_, SHUT_WR); }

void SocketConnection::Shutdown() {
  closed_ = true;
  shutdown(socket_, SHUT_RDWR);
  Wake();
}

void SocketConnection::Abandon() {
  closed_ = true;
  if (socket_ >= 0) close(std::exchange(socket_, -1));
  if (wake_ >= 0) close(std::exchange(wake_, -1));
}

std::unique_ptr<Connection> Adopt(int fd, const ConnectOptions& options) {
  base::UniqueFd socket(fd);
  int type = 0;
  int domain = 0;
  socklen_t size = sizeof type;
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) return nullptr;
  size = sizeof domain;
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0) return nullptr;
  const bool tcp = domain == AF_INET || domain == AF_INET6;
  if (!tcp && domain != AF_UNIX) return nullptr;
  base::UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return nullptr;
  base::SetCloexec(fd);
  base::SetNonBlocking(fd, false);  // only Recv blocks; all other calls pass MSG_DONTWAIT
  if (tcp) TuneTcp(fd, options);
  const int dead_peer_ms = tcp ? options.dead_peer_ms : 0;
  const int slice_ms = SliceMs(dead_peer_ms);
  const timeval slice{slice_ms / 1000, slice_ms % 1000 * 1000L};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &slice, sizeof slice);
  return std::make_unique<SocketConnection>(std::move(socket), std::move(wake),
                                            tcp ? "tcp" : "unix", dead_peer_ms);
}

}  // namespace rgpu::transport
