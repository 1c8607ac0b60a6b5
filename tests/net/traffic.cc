// Raw TCP between two network namespaces: what an emulated link is really like, by nothing but
// sockets.
//
//   traffic serve ADDRESS                  prints its port; serves until its input ends
//   traffic ping ADDRESS PORT COUNT        round trips of 64 bytes: min and median, ns
//   traffic down ADDRESS PORT SECONDS      bytes per second from the server to here
//   traffic up ADDRESS PORT SECONDS        the same the other way
//
// Rates leave out the first half of the time, in which a connection learns what there is.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr size_t kMessage = 64;
constexpr size_t kPiece = 256 << 10;
constexpr int kPatienceMs = 10'000;

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "traffic: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

double Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

int Socket(const char* address, int port, sockaddr_in* where) {
  *where = {};
  where->sin_family = AF_INET;
  where->sin_port = htons(static_cast<uint16_t>(port));
  if (inet_pton(AF_INET, address, &where->sin_addr) != 1) Fail(address);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) Fail("socket");
  return fd;
}

void Prepare(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const timeval patience{kPatienceMs / 1000, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

bool All(int fd, uint8_t* data, size_t bytes, bool sending) {
  while (bytes > 0) {
    const ssize_t done = sending ? send(fd, data, bytes, MSG_NOSIGNAL) : recv(fd, data, bytes, 0);
    if (done <= 0) return false;
    data += done;
    bytes -= static_cast<size_t>(done);
  }
  return true;
}

// The first byte says what a connection is for: p, d or u.
void Serve(int fd) {
  Prepare(fd);
  std::vector<uint8_t> data(kPiece);
  uint8_t kind = 0;
  if (All(fd, &kind, 1, false)) {
    if (kind == 'd') {
      while (All(fd, data.data(), kPiece, true)) {
      }
    } else if (kind == 'u') {
      // Counted where they arrive, and told once a second at most: by the time they are asked for.
      uint64_t total = 0;
      double begin = Now(), first = begin, last = begin;
      uint64_t at_first = 0;
      double seconds = 0;
      if (All(fd, reinterpret_cast<uint8_t*>(&seconds), sizeof seconds, false)) {
        begin = Now();
        for (ssize_t got = 1; got > 0 && last - begin < seconds;) {
          got = recv(fd, data.data(), kPiece, 0);
          total += got > 0 ? static_cast<uint64_t>(got) : 0;
          last = Now();
          if (last - begin < seconds / 2) first = last, at_first = total;
        }
        double rate = static_cast<double>(total - at_first) / std::max(last - first, 1e-9);
        All(fd, reinterpret_cast<uint8_t*>(&rate), sizeof rate, true);
        shutdown(fd, SHUT_WR);
        while (recv(fd, data.data(), kPiece, 0) > 0) {
        }
      }
    } else {
      while (All(fd, data.data(), kMessage, false) && All(fd, data.data(), kMessage, true)) {
      }
    }
  }
  close(fd);
}

int Listen(const char* address) {
  sockaddr_in where{};
  const int listener = Socket(address, 0, &where);
  if (bind(listener, reinterpret_cast<sockaddr*>(&where), sizeof where) != 0) Fail("bind");
  if (listen(listener, 16) != 0) Fail("listen");
  socklen_t size = sizeof where;
  getsockname(listener, reinterpret_cast<sockaddr*>(&where), &size);
  std::printf("%d\n", ntohs(where.sin_port));
  std::fflush(stdout);
  for (;;) {
    std::array<pollfd, 2> ready{{{listener, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}}};
    poll(ready.data(), ready.size(), -1);
    if (ready[1].revents != 0) _exit(0);
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd >= 0) std::thread(Serve, fd).detach();
  }
}

int Connect(const char* address, const char* port, uint8_t kind) {
  sockaddr_in where{};
  const int fd = Socket(address, std::atoi(port), &where);
  Prepare(fd);
  if (connect(fd, reinterpret_cast<sockaddr*>(&where), sizeof where) != 0) Fail("connect");
  if (!All(fd, &kind, 1, true)) Fail("send");
  return fd;
}

int Ping(int fd, int count) {
  std::array<uint8_t, kMessage> data{};
  std::vector<double> times;
  for (int i = 0; i < count + 3; ++i) {
    const double start = Now();
    if (!All(fd, data.data(), kMessage, true) || !All(fd, data.data(), kMessage, false))
      Fail("ping");
    if (i >= 3) times.push_back(Now() - start);
  }
  std::sort(times.begin(), times.end());
  std::printf("%.0f %.0f\n", times.front() * 1e9, times[(times.size() - 1) / 2] * 1e9);
  return 0;
}

int Down(int fd, double seconds) {
  std::vector<uint8_t> data(kPiece);
  const double begin = Now();
  double first = begin, last = begin;
  uint64_t total = 0, at_first = 0;
  while (last - begin < seconds) {
    const ssize_t got = recv(fd, data.data(), kPiece, 0);
    if (got <= 0) Fail("recv");
    total += static_cast<uint64_t>(got);
    last = Now();
    if (last - begin < seconds / 2) first = last, at_first = total;
  }
  std::printf("%.0f\n", static_cast<double>(total - at_first) / std::max(last - first, 1e-9));
  return 0;
}

int Up(int fd, double seconds) {
  std::vector<uint8_t> data(kPiece);
  if (!All(fd, reinterpret_cast<uint8_t*>(&seconds), sizeof seconds, true)) Fail("send");
  const double begin = Now();
  // The server ends it; what is still queued then is lost, which is why this end counts nothing.
  for (double rate = 0;;) {
    pollfd answer{fd, POLLIN, 0};
    if (poll(&answer, 1, 0) > 0) {
      if (!All(fd, reinterpret_cast<uint8_t*>(&rate), sizeof rate, false)) Fail("recv");
      std::printf("%.0f\n", rate);
      return 0;
    }
    if (Now() - begin > seconds + kPatienceMs / 1000) Fail("no answer");
    if (send(fd, data.data(), kPiece, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
      pollfd room{fd, POLLIN | POLLOUT, 0};
      poll(&room, 1, 100);
    }
  }
}

}  // namespace

int main(int count, char** words) {
  const std::string verb = count > 1 ? words[1] : "";
  if (verb == "serve" && count == 3) return Listen(words[2]);
  if (count == 5 && verb == "ping")
    return Ping(Connect(words[2], words[3], 'p'), std::atoi(words[4]));
  if (count == 5 && verb == "down")
    return Down(Connect(words[2], words[3], 'd'), std::atof(words[4]));
  if (count == 5 && verb == "up") return Up(Connect(words[2], words[3], 'u'), std::atof(words[4]));
  std::fputs("usage: traffic serve ADDRESS | ping|up|down ADDRESS PORT NUMBER\n", stderr);
  return 2;
}
