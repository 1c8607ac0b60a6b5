// Development mode: one session without a daemon, on a connected descriptor or a listening address.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>

#include "rgpu_common/native/base/log.h"
#include "rgpu_server/executor/graphs/exec.h"
#include "rgpu_server/executor/modes.h"

namespace rgpu::exec {

namespace {

constexpr int kHandshakeMs = 10'000;

lease::Page* OwnPage() {
  void* page =
      mmap(nullptr, lease::kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return nullptr;
  lease::InitPage(static_cast<lease::Page*>(page), 0);
  return static_cast<lease::Page*>(page);
}

// Reads the first frame of a connection. Returns false unless it is a handshake of `opcode`.
bool ReadHandshake(transport::Connection* connection, wire::Handshake opcode,
                   std::vector<uint8_t>* head) {
  transport::FrameReader reader(connection, 64U << 10);
  wire::FrameHeader header;
  wire::ByteView bytes;
  if (reader.Next(&header, &bytes, kHandshakeMs) != transport::ReadState::kFrame) return false;
  if (header.kind != wire::Kind::kHandshake || header.bulk_bytes != 0 ||
      header.opcode != static_cast<uint16_t>(opcode)) {
    return false;
  }
  head->assign(bytes.data, bytes.data + bytes.size);
  return true;
}

int ListenUnix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return -1;
  path.copy(address.sun_path, path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  unlink(path.c_str());
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return -1;
  return listen(fd, 8) == 0 ? fd : -1;
}

int ListenTcp(const std::string& host, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) return -1;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return -1;
  return listen(fd, 8) == 0 ? fd : -1;
}

int Listen(const std::string& uri) {
  if (uri.starts_with("unix:")) return ListenUnix(uri.substr(5));
  const size_t colon = uri.rfind(':');
  if (!uri.starts_with("tcp:") || colon <= 4) return -1;
  const long port = std::strtol(uri.c_str() + colon + 1, nullptr, 10);
  if (port <= 0 || port > 65535) return -1;
  return ListenTcp(uri.substr(4, colon - 4), static_cast<uint16_t>(port));
}

Session* OpenSession(const Options& options, const Driver& driver,
                     std::unique_ptr<transport::Connection> lane) {
  Assignment assignment;
  if (options.graph_nodes != 0) NodeBudget::SetMost(options.graph_nodes);
  assignment.whole_device = options.memory_bytes == 0;
  if (!ReadHandshake(lane.get(), wire::Handshake::kHello, &assignment.hello)) return nullptr;
  lease::Page* page = OwnPage();
  if (page == nullptr || getrandom(assignment.secret.data(), assignment.secret.size(), 0) < 0) {
    return nullptr;
  }
  assignment.session = static_cast<uint64_t>(getpid());
  page->slots[0].session = assignment.session;
  page->memory_limit_bytes = options.memory_bytes;
  auto* session = new Session(driver, std::move(assignment), page, std::move(lane));
  Refusal refusal;
  if (session->Open(&refusal)) {
    session->Serve();
    return session;
  }
  base::Log(base::Level::kError, "refused: %s", refusal.sentence.c_str());
  return nullptr;
}

// Accepts a second connection to the listening address as the control lane, if it knows the secret.
void AcceptControl(int listener, Session& session) {
  auto connection = transport::Adopt(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  std::vector<uint8_t> head;
  if (connection == nullptr || !ReadHandshake(connection.get(), wire::Handshake::kAttach, &head)) {
    return;
  }
  wire::Attach attach;
  wire::Reader reader(head.data(), head.size());
  if (wire::Get(reader, &attach) && session.MayAttach(attach))
    session.Attach(std::move(connection));
}

}  // namespace

int RunForDevelopment(const Options& options, const Driver& driver) {
  int listener = -1;
  int lane_fd = options.serve_fd;
  if (!options.listen.empty()) {
    listener = Listen(options.listen);
    if (listener < 0) {
      base::Log(base::Level::kError, "cannot listen on %s; give unix:/path or tcp:ADDRESS:PORT",
                options.listen.c_str());
      return 2;
    }
    lane_fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  }
  auto lane = transport::Adopt(lane_fd);
  if (lane == nullptr) {
    base::Log(base::Level::kError, "the descriptor given is not a connected socket");
    return 2;
  }
  Session* session = OpenSession(options, driver, std::move(lane));
  if (session == nullptr) _exit(1);
  if (options.control_lane_fd >= 0) {
    auto control = transport::Adopt(options.control_lane_fd);
    if (control != nullptr) session->Attach(std::move(control));
  }
  WatchUntilEnd(*session, listener, [&] {
    AcceptControl(listener, *session);
    return true;
  });
  base::Log(base::Level::kInfo, "%s", session->reason().c_str());
  Leave(*session);
}

}  // namespace rgpu::exec
