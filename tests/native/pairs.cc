#include "tests/native/pairs.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "rgpu_common/native/transport/shm/shm_connection.h"
#include "rgpu_common/native/transport/tls/tls_connection.h"
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

// Agreed on the rings, as the two ends of a session do.
Pair ShmPair(bool small_buffers) {
  int fds[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
  using transport::ShmConnection;
  const auto end = [](int fd, ShmConnection::Side side) {
    auto* socket = static_cast<transport::SocketConnection*>(transport::Adopt(fd).release());
    return std::make_unique<ShmConnection>(std::unique_ptr<transport::SocketConnection>(socket),
                                           side);
  };
  auto client = end(fds[0], ShmConnection::Side::kClient);
  auto server = end(fds[1], ShmConnection::Side::kServer);
  client->ExpectDescriptors();
  int error = 0;
  std::string why;
  char got[8] = {};
  CHECK(server->Make(&error, small_buffers ? transport::kLeastRingBytes : transport::kRingBytes));
  CHECK(server->SendWith("welcome", 7, {}));
  ReceiveBytes(*client, got, 7);
  if (!client->Map(&why)) Fail(__FILE__, __LINE__, why);
  client->Switch();
  server->Switch();
  return {std::move(client), std::move(server)};
}

// A certificate that nobody has to believe, in one file with its key; it ends with the process.
const std::string& Certificate() {
  static const struct File {
    File() {
      char folder[] = "/tmp/rgpu-tls-XXXXXX";
      CHECK(mkdtemp(folder) != nullptr);
      path = std::string(folder) + "/pem";
      const std::string command =
          "openssl req -x509 -config /dev/null -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes "
          "-subj /CN=test -days 1 -keyout " +
          path + " -out " + path + ".crt 2> /dev/null && cat " + path + ".crt >> " + path;
      CHECK_EQ(std::system(command.c_str()), 0);
    }
    ~File() { std::filesystem::remove_all(std::filesystem::path(path).parent_path()); }
    std::string path;
  } file;
  return file.path;
}

// Over a socket pair, with the ends' own contexts: whom they believe is connect_tls' matter.
Pair TlsPair(bool small_buffers) {
  namespace tls = transport::tls;
  std::string why;
  const tls::Api* api = tls::LoadOpenSsl(&why);
  if (api == nullptr) Fail(__FILE__, __LINE__, why);
  const auto end = [&](std::unique_ptr<transport::Connection> link, bool server) {
    tls::Context* context =
        api->SSL_CTX_new(server ? api->TLS_server_method() : api->TLS_client_method());
    api->SSL_CTX_ctrl(context, tls::kCtrlMinVersion, tls::kTls13, nullptr);
    api->SSL_CTX_ctrl(context, tls::kCtrlMode, tls::kPartialWrite | tls::kMovingBuffer, nullptr);
    api->SSL_CTX_ctrl(context, tls::kCtrlReadAhead, 1, nullptr);
    if (server) {
      const char* path = Certificate().c_str();
      CHECK(api->SSL_CTX_use_certificate_chain_file(context, path) == 1);
      CHECK(api->SSL_CTX_use_PrivateKey_file(context, path, tls::kPem) == 1);
      api->SSL_CTX_set_num_tickets(context, 0);
    }
    tls::Ssl* ssl = api->SSL_new(context);
    api->SSL_CTX_free(context);  // the connection keeps it
    server ? api->SSL_set_accept_state(ssl) : api->SSL_set_connect_state(ssl);
    return std::make_unique<tls::TlsConnection>(*api, ssl, std::move(link), true);
  };
  Pair link = UnixPair(small_buffers);
  auto client = end(std::move(link.a), false);
  auto server = end(std::move(link.b), true);
  bool timed_out = false;
  std::thread other([&] { CHECK(client->Handshake(5000, &timed_out)); });
  bool late = false;
  CHECK(server->Handshake(5000, &late));
  other.join();
  return {std::move(client), std::move(server)};
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
  Pair pair = kind == "unix"  ? UnixPair(small_buffers)
              : kind == "shm" ? ShmPair(small_buffers)
              : kind == "tls" ? TlsPair(small_buffers)
                              : TcpPair(small_buffers);
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

void ReceiveBytes(transport::Connection& connection, void* to, size_t bytes) {
  for (auto* at = static_cast<uint8_t*>(to); bytes > 0;) {
    const transport::IoResult result = connection.Recv(at, bytes, 5000);
    CHECK(result.ok());
    at += result.bytes;
    bytes -= result.bytes;
  }
}

void NeedsGuardedCopies() {
  if (process_vm_readv(getpid(), nullptr, 0, nullptr, 0, 0) < 0 && errno == ENOSYS) {
    throw Skipped("the kernel has no process_vm_readv, so copies are not guarded");
  }
}

HalfMapped::HalfMapped() : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
  NeedsGuardedCopies();
  void* at = mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(at != MAP_FAILED);
  data_ = static_cast<uint8_t*>(at);
  CHECK(mprotect(data_ + page_, page_, PROT_NONE) == 0);
}

HalfMapped::~HalfMapped() { munmap(data_, 2 * page_); }

}  // namespace rgpu::testing
