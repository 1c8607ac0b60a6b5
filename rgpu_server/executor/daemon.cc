// A worker of the daemon's pool: READY, ASSIGN, one session, the end.
#include <sys/mman.h>
#include <unistd.h>

#include "rgpu_common/native/base/log.h"
#include "rgpu_server/executor/ceiling.h"
#include "rgpu_server/executor/modes.h"

namespace rgpu::exec {

namespace {

constexpr size_t kMaxMessageBytes = 192U << 10;

// One message from the daemon. Receive returns false if the daemon is gone or sent no valid
// message.
struct Incoming {
  std::vector<uint8_t> bytes = std::vector<uint8_t>(kMaxMessageBytes);
  std::vector<base::UniqueFd> fds;
  size_t size = 0;

  bool Receive(int socket) {
    fds.clear();
    const ssize_t got = base::RecvMessage(socket, bytes.data(), bytes.size(), &fds);
    size = got > 0 ? static_cast<size_t>(got) : 0;
    return size >= sizeof(Message);
  }
  Message type() const {
    Message type{};
    std::memcpy(&type, bytes.data(), sizeof type);
    return type;
  }
  wire::Reader body() const { return {bytes.data() + sizeof(Message), size - sizeof(Message)}; }
};

lease::Page* MapPage(int grants_fd, int usage_fd) {
  lease::Page* page = lease::MapPage(grants_fd, usage_fd, false);
  return page != nullptr && lease::IsPage(page) ? page : nullptr;
}

// Handles RESUME: a new connection for a lane, and the head of the client's RESUME.
void OnResume(int socket, Session& session, Incoming& message) {
  wire::Reader body = message.body();
  wire::ByteView head;
  body.Get(&head);
  wire::Reader fields(head.data, head.size);
  wire::Resume resume;
  if (!body.done() || message.fds.empty() || !wire::Get(fields, &resume)) return;
  auto link = transport::Adopt(message.fds[0].release());
  if (link == nullptr) return;
  const auto report = session.Resume(resume, std::move(link));
  if (!report) return;
  Say(socket, Message::kResumed, [&](wire::Writer& w) {
    w.Put(static_cast<uint8_t>(report->lane));
    w.Put(report->epoch);
    w.Put(static_cast<uint8_t>(report->moved ? 1 : 0));
    w.Put(report->resent_bytes);
  });
}

// Handles one message. Returns false if no more messages will come.
bool OnMessage(int socket, Session& session) {
  Incoming message;
  // When the daemon restarts, running sessions go on.
  if (!message.Receive(socket)) return false;
  wire::Reader body = message.body();
  switch (message.type()) {
    case Message::kAttach:
      if (!message.fds.empty()) {
        auto control = transport::Adopt(message.fds[0].release());
        if (control != nullptr) session.Attach(std::move(control));
      }
      return true;
    case Message::kResume:
      OnResume(socket, session, message);
      return true;
    case Message::kEnd: {
      int32_t status = 0;
      wire::ByteView sentence;
      body.Get(&status);
      body.Get(&sentence);
      if (body.done()) {
        session.EndWith(static_cast<CUresult>(status), std::string(sentence.text()));
      }
      return true;
    }
    default:
      base::Log(base::Level::kError, "the daemon sent a message of type %u",
                static_cast<unsigned>(message.type()));
      return true;
  }
}

// Closing a socket that has unread messages would discard our own last messages, so read them.
void ReadRest(int socket) {
  Incoming message;
  base::SetNonBlocking(socket, true);
  while (message.Receive(socket)) {
  }
}

// Creates the session that an ASSIGN describes; null if the message describes none.
Session* MakeSession(const Driver& driver, Incoming& message) {
  Assignment assignment;
  wire::Reader body = message.body();
  if (message.type() != Message::kAssign || message.fds.size() < 4 ||
      !ReadAssignment(body, &assignment)) {
    base::Log(base::Level::kError,
              "the daemon's first message is not an ASSIGN that this worker can read; install the "
              "same rgpu release for both");
    return nullptr;
  }
  auto lane = transport::Adopt(message.fds[0].release());
  lease::Page* page = MapPage(message.fds[1].get(), message.fds[2].get());
  if (lane == nullptr || page == nullptr || assignment.slot >= lease::kSlots) {
    base::Log(base::Level::kError, "the daemon's ASSIGN lacks a connection or a lease page");
    return nullptr;
  }
  if (!SetCeiling(CeilingBytes(assignment.memory_limit_bytes, driver.emulated))) {
    base::Log(base::Level::kInfo, "this worker has no limit on its own memory (RLIMIT_DATA)");
  }
  assignment.signal = std::move(message.fds[3]);
  if (message.fds.size() > 4) {
    assignment.environment.push_back("RGPU_EMU_COMPILER_FD=" +
                                     std::to_string(message.fds[4].release()));
  }
  return new Session(driver, std::move(assignment), page, std::move(lane));
}

[[noreturn]] void Refused(int socket, const Refusal& refusal) {
  Say(socket, Message::kRefused, [&](wire::Writer& w) {
    w.Put(static_cast<int32_t>(refusal.status));
    w.Put(wire::Bytes(refusal.sentence));
  });
  ReadRest(socket);
  _exit(0);
}

}  // namespace

int RunForDaemon(const Options& options, const Driver& driver, const std::string& report) {
  const int socket = options.control_fd;
  Say(socket, Message::kReady, [&](wire::Writer& w) { w.Put(wire::Bytes(report)); });
  Incoming message;
  if (!message.Receive(socket)) return 0;  // the daemon no longer needs this worker
  Session* made = MakeSession(driver, message);
  if (made == nullptr) return 2;
  message.fds.clear();
  Session& session = *made;  // never destroyed: its threads outlive this function
  Refusal refusal;
  if (!session.Open(&refusal)) Refused(socket, refusal);
  Say(socket, Message::kOpened, [&](wire::Writer& w) {
    w.Put(session.band().base);
    w.Put(session.band().size);
    w.Put(session.ring());
  });
  session.Serve();
  WatchUntilEnd(session, socket, [&] { return OnMessage(socket, session); });
  Say(socket, Message::kEnded, [&](wire::Writer& w) { w.Put(wire::Bytes(session.reason())); });
  ReadRest(socket);
  Leave(session);
}

}  // namespace rgpu::exec
