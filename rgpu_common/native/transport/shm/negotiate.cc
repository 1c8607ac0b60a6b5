// Passes the rings to the client: as a descriptor, sent together with WELCOME.
#include <errno.h>
#include <sys/socket.h>

#include <array>
#include <cstring>

#include "rgpu_common/native/transport/shm/shm_connection.h"

namespace rgpu::transport {

namespace {

constexpr int kSendTimeoutMs = 10'000;

std::unique_ptr<SocketConnection> AsUnixSocket(std::unique_ptr<Connection>& connection) {
  auto* socket = dynamic_cast<SocketConnection*>(connection.get());
  if (socket == nullptr || std::strcmp(socket->kind(), "unix") != 0) return nullptr;
  static_cast<void>(connection.release());
  return std::unique_ptr<SocketConnection>(socket);
}

}  // namespace

std::unique_ptr<Connection> ConnectShm(const std::string& address, const ConnectOptions& options,
                                       ConnectError* why) {
  std::unique_ptr<Connection> connection = ConnectUnix(address, options, why);
  if (connection == nullptr) return nullptr;
  return std::make_unique<ShmConnection>(AsUnixSocket(connection), ShmConnection::Side::kClient);
}

std::unique_ptr<Connection> MayShare(std::unique_ptr<Connection> connection) {
  auto socket = AsUnixSocket(connection);
  if (socket == nullptr) return connection;
  return std::make_unique<ShmConnection>(std::move(socket), ShmConnection::Side::kServer);
}

bool ShmConnection::Make(int* error, size_t ring_bytes) {
  return Segment::Make(ring_bytes, &segment_, &segment_fd_, error);
}

bool ShmConnection::SendWith(const void* frame, size_t bytes, const std::vector<int>& more) {
  std::vector<int> fds = {segment_fd_.get()};
  fds.insert(fds.end(), more.begin(), more.end());
  const auto* at = static_cast<const uint8_t*>(frame);
  // Send the descriptors with the first byte, for which a fresh socket always has room.
  if (bytes == 0 || !base::SendMessage(socket_->socket(), at, 1, fds)) return false;
  iovec rest{const_cast<uint8_t*>(at) + 1, bytes - 1};
  while (rest.iov_len > 0) {
    const IoResult result = socket_->TrySend(&rest, 1);
    if (result.ok()) {
      rest = {static_cast<uint8_t*>(rest.iov_base) + result.bytes, rest.iov_len - result.bytes};
    } else if (result.state != IoState::kWouldBlock ||
               socket_->Wait(kWritable, kSendTimeoutMs) == 0) {
      return false;
    }
  }
  return true;
}

// Like SocketConnection::TryRecv, but also keeps the descriptors that arrive.
IoResult ShmConnection::ReceiveWithDescriptors(void* to, size_t bytes) {
  iovec part{to, bytes};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * base::kMaxPassedFds)> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got = 0;
  do {
    got = recvmsg(socket_->socket(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return {IoState::kWouldBlock, 0, 0};
    return {IoState::kFailed, 0, errno};
  }
  for (base::UniqueFd& fd : base::TakeDescriptors(&message)) {
    if (received_.size() < base::kMaxPassedFds) received_.push_back(std::move(fd));
  }
  if (got == 0) return {IoState::kClosed, 0, 0};
  return {IoState::kDone, static_cast<size_t>(got), 0};
}

bool ShmConnection::Map(std::string* why) {
  if (received_.empty()) {
    *why =
        "the memory that the server sent did not arrive; check the limit of open files (ulimit "
        "-n), "
        "and whether a filter of system calls refuses descriptors";
    return false;
  }
  base::UniqueFd fd = std::move(received_.front());
  received_.erase(received_.begin());
  return Segment::Map(fd, &segment_, why);
}

void ShmConnection::Switch() {
  segment_fd_.reset();
  expects_ = false;
  // The server writes the first ring, and the client writes the second.
  rings_.emplace(segment_, side_ == Side::kServer ? 0 : 1, static_cast<Doorbell*>(this));
  switched_.store(true, std::memory_order_release);
}

void ShmConnection::StayOnSocket() {
  segment_fd_.reset();
  received_.clear();
  expects_ = false;
  const Segment gone(std::move(segment_));
}

}  // namespace rgpu::transport
