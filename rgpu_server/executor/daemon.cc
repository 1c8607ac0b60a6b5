// A worker of the daemon's pool: READY, ASSIGN, one session, the end.
#include <sys/mman.h>
#include <unistd.h>

#include "gen/worker.gen.h"
#include "rgpu_common/native/base/log.h"
#include "rgpu_server/executor/ceiling.h"
#include "rgpu_server/executor/daemon_channel.h"
#include "rgpu_server/executor/modes.h"
#include "rgpu_server/executor/printed.h"

namespace rgpu::exec {

namespace {

namespace worker = wire::worker;

// One message from the daemon. Receive returns false if the daemon is gone or sent no valid
// message.
struct Incoming {
  std::vector<uint8_t> bytes = std::vector<uint8_t>(worker::kMaxMessageBytes);
  std::vector<base::UniqueFd> fds;
  size_t size = 0;

  bool Receive(int socket) {
    fds.clear();
    const ssize_t got = base::RecvMessage(socket, bytes.data(), bytes.size(), &fds);
    size = got > 0 ? static_cast<size_t>(got) : 0;
    return size >= sizeof(worker::MessageType);
  }
  worker::MessageType type() const {
    worker::MessageType type{};
    std::memcpy(&type, bytes.data(), sizeof type);
    return type;
  }
  // Reads the message if it is one of type T with the descriptors of its row.
  template <typename T>
  bool Read(T* message) const {
    const bool complete = fds.size() >= T::kLeastFds && fds.size() <= T::kMostFds;
    wire::Reader body(bytes.data() + sizeof(T::kType), size - sizeof(T::kType));
    return type() == T::kType && complete && worker::Get(body, message);
  }
};

lease::Page* MapPage(int grants_fd, int usage_fd) {
  lease::Page* page = lease::MapPage(grants_fd, usage_fd, false);
  return page != nullptr && lease::IsPage(page) ? page : nullptr;
}

void OnAttach(Session& session, Incoming& message) {
  worker::Attach attach;
  if (!message.Read(&attach)) return;
  auto control = transport::Adopt(message.fds[worker::Attach::kLane].release());
  if (control != nullptr) session.Attach(std::move(control));
}

void OnResume(int socket, Session& session, Incoming& message) {
  worker::Resume asked;
  if (!message.Read(&asked)) return;
  wire::Reader head(asked.head.data(), asked.head.size());
  wire::Resume resume;
  if (!wire::Get(head, &resume)) return;
  auto link = transport::Adopt(message.fds[worker::Resume::kLink].release());
  if (link == nullptr) return;
  const auto report = session.Resume(resume, std::move(link));
  if (!report) return;
  SayToDaemon(socket,
              worker::Resumed{report->lane, report->epoch, report->moved, report->resent_bytes});
}

void OnEnd(Session& session, const Incoming& message) {
  worker::End end;
  if (message.Read(&end)) session.EndWith(static_cast<CUresult>(end.status), end.sentence);
}

void OnWarn(Session& session, const Incoming& message) {
  worker::Warn warn;
  if (!message.Read(&warn)) return;
  SendWarning(session.outbox(), warn.sentence);
  session.outbox().Flush();
}

// Messages about exports. Returns false for all others.
bool OnExports(Session& session, Incoming& message) {
  worker::ExportWanted wanted;
  worker::ExportOpened opened;
  worker::ExportReleased released;
  if (message.Read(&wanted)) {
    session.exports().OnWanted(wanted);
  } else if (message.Read(&opened)) {
    using Opened = worker::ExportOpened;
    const bool has_file = message.fds.size() > Opened::kFile;
    session.exports().OnOpened(opened,
                               has_file ? std::move(message.fds[Opened::kFile]) : base::UniqueFd());
  } else if (message.Read(&released)) {
    session.exports().OnReleased(released.number);
  } else {
    return false;
  }
  return true;
}

// Handles one message. Returns false if no more messages will come.
bool OnMessage(int socket, Session& session) {
  Incoming message;
  // When the daemon restarts, running sessions go on.
  if (!message.Receive(socket)) return false;
  switch (message.type()) {
    case worker::MessageType::kAttach:
      OnAttach(session, message);
      return true;
    case worker::MessageType::kResume:
      OnResume(socket, session, message);
      return true;
    case worker::MessageType::kEnd:
      OnEnd(session, message);
      return true;
    case worker::MessageType::kWarn:
      OnWarn(session, message);
      return true;
    default:
      if (OnExports(session, message)) return true;
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
  using worker::Assign;
  Assignment assignment;
  if (!message.Read<Assign>(&assignment)) {
    base::Log(base::Level::kError,
              "the daemon's first message is not an ASSIGN that this worker can read; install the "
              "same rgpu release for both");
    return nullptr;
  }
  auto lane = transport::Adopt(message.fds[Assign::kLane].release());
  lease::Page* page =
      MapPage(message.fds[Assign::kGrants].get(), message.fds[Assign::kUsage].get());
  if (lane == nullptr || page == nullptr || assignment.slot >= lease::kSlots) {
    base::Log(base::Level::kError, "the daemon's ASSIGN lacks a connection or a lease page");
    return nullptr;
  }
  if (!SetCeiling(CeilingBytes(assignment.memory_limit_bytes, driver.emulated))) {
    base::Log(base::Level::kInfo, "this worker has no limit on its own memory (RLIMIT_DATA)");
  }
  assignment.signal = std::move(message.fds[Assign::kSignal]);
  if (message.fds.size() > Assign::kCompiler) {
    const int compiler = message.fds[Assign::kCompiler].release();
    assignment.environment.push_back("RGPU_EMU_COMPILER_FD=" + std::to_string(compiler));
  }
  return new Session(driver, std::move(assignment), page, std::move(lane));
}

[[noreturn]] void Refused(int socket, const Refusal& refusal) {
  SayToDaemon(socket, worker::Refused{static_cast<int32_t>(refusal.status), refusal.sentence});
  ReadRest(socket);
  _exit(0);
}

}  // namespace

int RunForDaemon(const Options& options, const Driver& driver, const std::string& report) {
  const int socket = options.control_fd;
  SayToDaemon(socket, worker::Ready{report});
  Incoming message;
  if (!message.Receive(socket)) return 0;  // the daemon no longer needs this worker
  Session* made = MakeSession(driver, message);
  if (made == nullptr) return 2;
  message.fds.clear();
  Session& session = *made;  // never destroyed: its threads outlive this function
  Refusal refusal;
  if (!session.Open(&refusal)) Refused(socket, refusal);
  session.exports().ConnectDaemon(socket, session.number());
  SayToDaemon(socket, worker::Opened{session.band(), session.ring()});
  session.Serve();
  WatchUntilEnd(session, socket, [&] { return OnMessage(socket, session); });
  SayToDaemon(socket, worker::Ended{session.reason()});
  ReadRest(socket);
  Leave(session);
}

}  // namespace rgpu::exec
