#include "rgpu_client/shim/agent.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "rgpu_client/shim/service_thread.h"
#include "rgpu_client/shim/session.h"
#include "rgpu_common/native/base/fd.h"
#include "rgpu_common/native/base/log.h"

namespace rgpu::shim {
namespace {

constexpr size_t kMaxMessageBytes = 4096;
constexpr std::string_view kMove = "MOVE ";

}  // namespace

bool Agent::Start(Session* session, const std::string& path) {
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  if (path.size() >= sizeof to.sun_path) return false;
  path.copy(to.sun_path, path.size());
  base::UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  int error = 0;
  do {
    error = connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error != 0) {
    base::Log(base::Level::kInfo, "no agent at %s: %s", path.c_str(),
              base::ErrnoText(error).c_str());
    return false;
  }
  session_ = session;
  socket_ = fd.release();
  return StartServiceThread("rgpu-agent", &Agent::Run, this);
}

void Agent::Abandon() {
  if (socket_ >= 0) close(std::exchange(socket_, -1));
}

void Agent::Run(void* agent) {
  auto* self = static_cast<Agent*>(agent);
  std::array<char, kMaxMessageBytes> message;
  for (;;) {
    const ssize_t got = recv(self->socket_, message.data(), message.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;  // the agent has ended; the session runs without an agent
    const std::string answer = self->Answer({message.data(), static_cast<size_t>(got)});
    if (answer.empty()) continue;
    if (send(self->socket_, answer.data(), answer.size(), MSG_NOSIGNAL) < 0) return;
  }
}

// The answer to one message. Empty for an unknown message: a later release may have added it.
std::string Agent::Answer(std::string_view message) {
  if (message == "STATS?") return session_->Stats();
  if (!message.starts_with(kMove)) return {};
  const std::string uri(message.substr(kMove.size()));
  std::string why;
  if (session_->Move(uri, &why)) return "MOVED " + uri;
  return "STAYED " + uri + " " + why;
}

}  // namespace rgpu::shim
