// File descriptors: owning one, and passing some to another process over a Unix socket.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace rgpu::base {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

inline constexpr size_t kMaxPassedFds = 8;

// Sends one message with descriptors over a Unix socket. The socket must keep messages whole, or
// the message be a single byte. False: errno says why.
bool SendMessage(int socket, const void* data, size_t bytes, const std::vector<int>& fds = {});

// Receives one message and returns its length. 0: the peer has closed the socket. -1: errno says
// why; EMSGSIZE means that the message was longer than `capacity` and has been dropped. The
// received descriptors have CLOEXEC set.
ssize_t RecvMessage(int socket, void* data, size_t capacity, std::vector<UniqueFd>* fds);

// The descriptors that came with a message.
std::vector<UniqueFd> TakeDescriptors(msghdr* message);

bool SetNonBlocking(int fd, bool on);
bool SetCloexec(int fd);

// The text of an errno, thread-safe.
std::string ErrnoText(int error);

}  // namespace rgpu::base
