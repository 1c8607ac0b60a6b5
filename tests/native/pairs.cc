#include "tests/native/pairs.h"

#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/native/testing.h"

namespace rgpu::testing {
namespace {

void Shrink(int fd) {
  const int bytes = 4096;
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

Pair UnixPair(bool small_buffers) {
  int fds[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
  if (small_buffers) {
    Shrink(fds[0]);
    Shrink(fds[1]);
  }
  return {transport::Adopt(fds[0]), transport::Adopt(fds[1])};
}

Pair TcpPair(bool small_buffers) {
  std::string uri;
  const base::UniqueFd listener = ListenTcp(8, &uri);
  if (small_buffers) Shrink(listener.get());  // accepted sockets inherit it
  transport::ConnectError why;
  Pair pair;
  pair.a = transport::Connect(uri, {}, &why);
  if (pair.a == nullptr) Fail(__FILE__, __LINE__, why.sentence);
  pair.b = transport::Adopt(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  CHECK(pair.b != nullptr);
  return pair;
}

}  // namespace

base::UniqueFd ListenTcp(int backlog, std::string* uri, bool ipv6) {
  base::UniqueFd fd(socket(ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_addr = in6addr_loopback;
  auto* address = ipv6 ? reinterpret_cast<sockaddr*>(&v6) : reinterpret_cast<sockaddr*>(&v4);
  socklen_t size = ipv6 ? sizeof v6 : sizeof v4;
  if (!fd.valid() || bind(fd.get(), address, size) != 0) return base::UniqueFd();
  CHECK(listen(fd.get(), backlog) == 0);
  CHECK(getsockname(fd.get(), address, &size) == 0);
  const int port = ntohs(ipv6 ? v6.sin6_port : v4.sin_port);
  *uri = (ipv6 ? "[::1]:" : "127.0.0.1:") + std::to_string(port);
  return fd;
}

Pair MakePair(const std::string& kind, bool small_buffers) {
  Pair pair = kind == "unix" ? UnixPair(small_buffers) : TcpPair(small_buffers);
  CHECK(pair.a != nullptr && pair.b != nullptr);
  CHECK_EQ(std::string(pair.a->kind()), kind);
  return pair;
}

void SendBytes(transport::Connection& connection, const void* data, size_t bytes) {
  const auto* at = static_cast<const uint8_t*>(data);
  while (bytes > 0) {
    const iovec part{const_cast<uint8_t*>(at), bytes};
    const transport::IoResult result = connection.TrySend(&part, 1);
    if (result.state == transport::IoState::kWouldBlock) {
      CHECK(connection.Wait(transport::kWritable, 5000) != 0);
      continue;
    }
    CHECK(result.ok());
    at += result.bytes;
    bytes -= result.bytes;
  }
}

HalfMapped::HalfMapped() : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
  void* at = mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(at != MAP_FAILED);
  data_ = static_cast<uint8_t*>(at);
  CHECK(mprotect(data_ + page_, page_, PROT_NONE) == 0);
}

HalfMapped::~HalfMapped() { munmap(data_, 2 * page_); }

}  // namespace rgpu::testing
