#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <vector>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/transport/socket_connection.h"
#include "tests/native/pairs.h"
#include "tests/native/testing.h"

namespace rgpu::transport {
namespace {

using testing::MakePair;
using testing::OverBoth;
using testing::Pair;

TEST(connection, moves_bytes_and_never_blocks) {
  OverBoth([](const std::string& kind) {
    Pair pair = MakePair(kind);
    char got[16] = {};
    CHECK(pair.b->TryRecv(got, sizeof got).state == IoState::kWouldBlock);
    CHECK_EQ(pair.b->Wait(kReadable, 0), 0);
    CHECK(pair.b->Recv(got, sizeof got, 1).state == IoState::kWouldBlock);
    const iovec parts[2] = {{const_cast<char*>("ab"), 2}, {const_cast<char*>("cde"), 3}};
    CHECK_EQ(pair.a->TrySend(parts, 2).bytes, 5U);
    CHECK_EQ(pair.b->Wait(kReadable, 5000), kReadable);
    CHECK_EQ(pair.b->Recv(got, sizeof got, 5000).bytes, 5U);
    CHECK(std::memcmp(got, "abcde", 5) == 0);
    CHECK_EQ(pair.a->Wait(kReadable | kWritable, 5000), kWritable);
  });
}

TEST(connection, tells_when_the_peer_is_gone) {
  OverBoth([](const std::string& kind) {
    Pair pair = MakePair(kind);
    pair.a.reset();
    char got = 0;
    CHECK((pair.b->Wait(kReadable, 5000) & kReadable) != 0);
    CHECK(pair.b->Recv(&got, 1, 5000).lost());
    std::vector<char> data(1 << 20);
    const iovec part{data.data(), data.size()};
    const base::Deadline deadline(5000);
    IoResult result;
    while (!result.lost()) {
      CHECK(!deadline.passed());
      result = pair.b->TrySend(&part, 1);
    }
  });
}

TEST(connection, wake_ends_one_wait) {
  OverBoth([](const std::string& kind) {
    Pair pair = MakePair(kind);
    std::thread waker([&] { pair.a->Wake(); });
    CHECK_EQ(pair.a->Wait(kReadable | kWoken, 5000), kWoken);
    waker.join();
    CHECK_EQ(pair.a->Wait(kReadable | kWoken, 0), 0);
    pair.a->Wake();  // before anybody waits
    CHECK_EQ(pair.a->Wait(kReadable, 0), 0);
    CHECK_EQ(pair.a->Wait(kWoken, 5000), kWoken);
  });
}

TEST(connection, shutdown_ends_waits_in_other_threads) {
  OverBoth([](const std::string& kind) {
    Pair pair = MakePair(kind);
    IoState seen = IoState::kDone;
    std::thread reader([&] {
      char got = 0;
      seen = pair.a->Recv(&got, 1, 5000).state;
    });
    pair.a->Shutdown();
    reader.join();
    CHECK(seen == IoState::kClosed);
    const iovec part{const_cast<char*>("x"), 1};
    CHECK(pair.a->TrySend(&part, 1).state == IoState::kClosed);
    CHECK_EQ(pair.a->Wait(kWritable, -1), kWritable);
    char got = 0;
    CHECK(pair.b->Recv(&got, 1, 5000).lost());
  });
}

TEST(connection, abandoned_in_a_child_goes_on_in_the_parent) {
  OverBoth([](const std::string& kind) {
    Pair pair = MakePair(kind);
    const pid_t child = fork();
    if (child == 0) {
      pair.a->Abandon();
      char got = 0;
      const bool closed = pair.a->TryRecv(&got, 1).state == IoState::kClosed;
      pair.a->Shutdown();
      pair.a->Wake();
      _exit(closed ? 0 : 1);
    }
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    testing::SendBytes(*pair.a, "ok", 2);
    char got[2] = {};
    CHECK_EQ(pair.b->Recv(got, 2, 5000).bytes, 2U);
  });
}

TEST(connection, a_bad_destination_leaves_the_stream_undisturbed) {
  OverBoth([](const std::string& kind) {
    Pair pair = MakePair(kind);
    if (!pair.a->checks_memory()) return;  // its users look first
    const testing::HalfMapped half;
    testing::SendBytes(*pair.a, "abcd", 4);
    CHECK(pair.b->Wait(kReadable, 5000) != 0);
    CHECK(pair.b->TryRecv(half.data() + half.page(), 4).state == IoState::kFault);
    char got[4] = {};
    CHECK_EQ(pair.b->Recv(got, 4, 5000).bytes, 4U);
    CHECK(std::memcmp(got, "abcd", 4) == 0);
    const iovec part{half.data() + half.page(), 4};
    CHECK(pair.a->TrySend(&part, 1).state == IoState::kFault);
  });
}

TEST(connect, sets_what_tcp_needs) {
  std::string uri;
  const base::UniqueFd listener = testing::ListenTcp(8, &uri);
  ConnectError why;
  for (const std::string& name : {uri, "tcp:" + uri, "localhost" + uri.substr(uri.find(':'))}) {
    CHECK(Connect(name, {}, &why) != nullptr);
    CHECK(why.sentence.empty());
    const int fd = accept(listener.get(), nullptr, nullptr);
    const auto accepted = Adopt(fd, {.dead_peer_ms = 10000});
    int value = 0;
    socklen_t size = sizeof value;
    CHECK(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &size) == 0 && value == 1);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &size) == 0 && value == 1);
    int probe[3] = {};
    getsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &probe[0], &size);
    getsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &probe[1], &size);
    getsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probe[2], &size);
    CHECK_EQ(probe[0] + probe[1] * probe[2], 10);
    CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);
  }
}

TEST(connection, a_peer_is_dead_when_it_owes_an_answer) {
  tcp_info info{};
  info.tcpi_last_ack_recv = 60000;
  CHECK(!PeerIsDead(info, 10000));  // idle: keep-alive looks after it
  info.tcpi_unacked = 1;
  CHECK(PeerIsDead(info, 10000));
  info.tcpi_last_ack_recv = 9999;
  CHECK(!PeerIsDead(info, 10000));
  info = {};
  info.tcpi_last_ack_recv = 10000;
  info.tcpi_probes = 2;
  CHECK(!PeerIsDead(info, 10000));
  info.tcpi_probes = 3;
  CHECK(PeerIsDead(info, 10000));
}

// A program stopped in a debugger: its machine answers, it takes nothing.
TEST(connection, a_peer_that_only_takes_nothing_is_alive) {
  std::string uri;
  const base::UniqueFd listener = testing::ListenTcp(1, &uri);
  ConnectError why;
  const auto sender = Connect(uri, {.dead_peer_ms = 50}, &why);
  const base::UniqueFd taker(accept(listener.get(), nullptr, nullptr));
  const std::vector<char> data(1 << 20);
  const iovec part{const_cast<char*>(data.data()), data.size()};
  while (sender->TrySend(&part, 1).ok()) {
  }
  CHECK_EQ(sender->Wait(kWritable, 400), 0);
  CHECK(!sender->TrySend(&part, 1).lost());
}

TEST(connect, reaches_ipv6) {
  std::string uri;
  const base::UniqueFd listener = testing::ListenTcp(8, &uri, true);
  if (!listener.valid()) return;  // this kernel has no IPv6: nothing to reach
  ConnectError why;
  CHECK(Connect(uri, {}, &why) != nullptr);
  CHECK(Connect("tcp:" + uri, {}, &why) != nullptr);
}

TEST(connect, reaches_a_unix_socket) {
  const std::string folder = "/tmp/rgpu-native-" + std::to_string(getpid());
  const std::string path = folder + ".sock";
  base::UniqueFd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path.c_str());
  CHECK(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  CHECK(listen(listener.get(), 0) == 0);
  ConnectError why;
  const ConnectOptions quick{.timeout_ms = 100};
  std::vector<std::unique_ptr<Connection>> filled;
  // A server that accepts nothing: the backlog fills, then the time bounds the wait.
  for (int i = 0; i < 4 && why.error == 0; ++i) {
    filled.push_back(Connect("unix:" + path, quick, &why));
  }
  CHECK(filled.front() != nullptr);
  CHECK_EQ(why.error, EAGAIN);
  unlink(path.c_str());
  CHECK(Connect("unix:" + path, {}, &why) == nullptr);
  CHECK_EQ(why.error, ENOENT);
  CHECK(why.sentence.find("rgpu serve --listen unix:") != std::string::npos);
}

TEST(connect, a_port_that_is_left_out_is_7700) {
  const std::pair<const char*, const char*> bare[] = {
      {"127.93.17.212", "nothing listens at 127.93.17.212:7700"},
      {"tcp:127.93.17.212", "nothing listens at 127.93.17.212:7700"},
      {"tls:127.93.17.212", "nothing listens at 127.93.17.212:7700"},
      {"[::ffff:127.93.17.212]", "nothing listens at [::ffff:127.93.17.212]:7700"},
  };
  for (const auto& [uri, part] : bare) {
    ConnectError why;
    CHECK(Connect(uri, {}, &why) == nullptr);
    if (why.sentence.find(part) == std::string::npos) {
      testing::Fail(__FILE__, __LINE__, std::string(uri) + ": " + why.sentence);
    }
  }
}

TEST(connect, says_what_to_do) {
  const std::pair<const char*, const char*> wrong[] = {
      {"", "write HOST:PORT"},           {"a/gpu", "write HOST:PORT"},
      {":7700", "write HOST:PORT"},      {"gpu:", "write HOST:PORT"},
      {"gpu:77000", "write HOST:PORT"},  {"gpu:0", "write HOST:PORT"},
      {"gpu:7x", "write HOST:PORT"},     {"::1:7700", "write HOST:PORT"},
      {"[]:7700", "write HOST:PORT"},    {"unix:relative", "unix:/PATH"},
      {"shm:relative", "shm:/PATH"},     {"grpc:a:1", "'rgpu agent --server grpc:a:1"},
      {"grpcs:a:1", "through an agent"}, {"tcp:", "write HOST:PORT"},
  };
  for (const auto& [uri, part] : wrong) {
    ConnectError why;
    CHECK(Connect(uri, {}, &why) == nullptr);
    if (why.sentence.find(part) == std::string::npos) {
      testing::Fail(__FILE__, __LINE__, std::string(uri) + ": " + why.sentence);
    }
  }
  ConnectError why;
  CHECK(Connect("unix:/" + std::string(200, 'x'), {}, &why) == nullptr);
  CHECK_EQ(why.error, ENAMETOOLONG);
  // A label too long for the name service: no query leaves this machine.
  CHECK(Connect(std::string(70, 'x') + ".invalid:7700", {}, &why) == nullptr);
  CHECK(why.sentence.find("cannot be resolved") != std::string::npos);
  std::string uri;
  testing::ListenTcp(1, &uri).reset();
  CHECK(Connect(uri, {}, &why) == nullptr);
  CHECK_EQ(why.error, ECONNREFUSED);
  CHECK(why.sentence.find("rgpu serve --listen " + uri) != std::string::npos);
}

TEST(connect, goes_where_the_name_led_before) {
  std::string uri;
  ConnectError why;
  {
    const base::UniqueFd listener = testing::ListenTcp(8, &uri);
    CHECK(Connect(uri, {.known_first = true}, &why) != nullptr);
    CHECK(Connect(uri, {.known_first = true}, &why) != nullptr);
  }
  // What is known does not hide why there is nobody.
  CHECK(Connect(uri, {.known_first = true}, &why) == nullptr);
  CHECK_EQ(why.error, ECONNREFUSED);
}

TEST(connect, gives_up_in_time) {
  std::string uri;
  const base::UniqueFd listener = testing::ListenTcp(0, &uri);
  std::vector<std::unique_ptr<Connection>> filled;
  ConnectError why;
  const ConnectOptions quick{.timeout_ms = 100};
  for (int i = 0; i < 8 && why.error == 0; ++i) filled.push_back(Connect(uri, quick, &why));
  CHECK_EQ(why.error, ETIMEDOUT);
  CHECK(why.sentence.find("firewall") != std::string::npos);
}

TEST(connect, adopts_only_stream_sockets) {
  CHECK(Adopt(-1) == nullptr);
  CHECK(Adopt(socket(AF_INET, SOCK_DGRAM, 0)) == nullptr);
  CHECK(Adopt(open("/dev/null", O_RDWR)) == nullptr);
}

}  // namespace
}  // namespace rgpu::transport
