#include "rgpu_emu/device/exec/compiler_client.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "rgpu_emu/device/exec/compiler_replies.h"

extern char** environ;

namespace rgpu::emu {
namespace {

namespace codec = wire::compiler;

using Clock = std::chrono::steady_clock;

constexpr int kChildFd = 3;

enum class Io { kDone, kClosed, kTimeout };

// Waits until the socket is ready for `events`; false after the deadline.
bool WaitFor(int fd, short events, Clock::time_point deadline) {
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    struct pollfd entry = {fd, events, 0};
    const int ready = poll(&entry, 1, static_cast<int>(std::min<int64_t>(left, 60'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return true;  // the transfer will report the error
  }
}

Io SendAll(int fd, const uint8_t* data, size_t bytes, Clock::time_point deadline) {
  while (bytes != 0) {
    const ssize_t sent = send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      data += sent;
      bytes -= static_cast<size_t>(sent);
    } else if (errno == EAGAIN || errno == EINTR) {
      if (!WaitFor(fd, POLLOUT, deadline)) return Io::kTimeout;
    } else {
      return Io::kClosed;
    }
  }
  return Io::kDone;
}

Io ReceiveAll(int fd, uint8_t* data, size_t bytes, Clock::time_point deadline) {
  while (bytes != 0) {
    const ssize_t got = recv(fd, data, bytes, MSG_DONTWAIT);
    if (got > 0) {
      data += got;
      bytes -= static_cast<size_t>(got);
    } else if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (!WaitFor(fd, POLLIN, deadline)) return Io::kTimeout;
    } else {
      return Io::kClosed;
    }
  }
  return Io::kDone;
}

std::vector<std::string> SplitAtBlanks(const std::string& command) {
  std::vector<std::string> words;
  size_t at = 0;
  while ((at = command.find_first_not_of(' ', at)) != std::string::npos) {
    const size_t end = std::min(command.find(' ', at), command.size());
    words.push_back(command.substr(at, end - at));
    at = end;
  }
  return words;
}

// The child gets the socket as fd 3 and no other descriptor; it ends when the socket closes. It has
// a process group of its own, so that Ctrl-C in a terminal reaches only the program.
int SpawnCompiler(const std::vector<std::string>& words, int socket, pid_t* pid) {
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, socket, kChildFd);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigset_t defaults;
  sigemptyset(&none);
  sigemptyset(&defaults);
  for (const int signal : {SIGPIPE, SIGINT, SIGTERM, SIGCHLD}) sigaddset(&defaults, signal);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  const int failed = posix_spawnp(pid, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return failed;
}

template <typename T>
std::vector<uint8_t> Encoded(const T& message) {
  std::vector<uint8_t> bytes;
  wire::Writer writer(&bytes);
  codec::Put(writer, message);
  return bytes;
}

std::vector<std::vector<uint8_t>> Inputs(std::span<const std::string_view> ptx) {
  std::vector<std::vector<uint8_t>> inputs;
  for (const std::string_view text : ptx) inputs.emplace_back(text.begin(), text.end());
  return inputs;
}

}  // namespace

CompilerOptions CompilerOptionsFromEnvironment() {
  CompilerOptions options;
  if (const char* fd = getenv("RGPU_EMU_COMPILER_FD"); fd != nullptr && *fd != 0)
    options.fd = atoi(fd);
  if (const char* command = getenv("RGPU_EMU_COMPILER"); command != nullptr && *command != 0) {
    options.command = command;
  }
  return options;
}

CompilerClient::CompilerClient(CompilerOptions options)
    : options_(std::move(options)), fd_(options_.fd) {
  if (fd_ >= 0) {
    fcntl(fd_, F_SETFD, FD_CLOEXEC);
    generation_ = 1;
  }
}

CompilerClient::~CompilerClient() { Disconnect(); }

void CompilerClient::Disconnect() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

Outcome CompilerClient::Lost(const std::string& why) {
  Disconnect();
  return {CUDA_ERROR_JIT_COMPILER_NOT_FOUND, why};
}

Outcome CompilerClient::EnsureConnected() {
  if (fd_ >= 0) return {};
  if (options_.fd >= 0) {
    return {CUDA_ERROR_JIT_COMPILER_NOT_FOUND,
            "The PTX compiler of this session has ended; open a new session."};
  }
  return Start();
}

Outcome CompilerClient::Start() {
  std::vector<std::string> words = SplitAtBlanks(options_.command);
  if (words.empty())
    return {CUDA_ERROR_JIT_COMPILER_NOT_FOUND, "RGPU_EMU_COMPILER names no command."};
  words.insert(words.end(), {"--fd", std::to_string(kChildFd)});
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    return {CUDA_ERROR_OPERATING_SYSTEM,
            std::string("socketpair failed: ") + strerror(errno) + "."};
  }
  int theirs = pair[1];
  if (theirs == kChildFd) {  // dup2 onto itself would leave it close-on-exec
    theirs = fcntl(pair[1], F_DUPFD_CLOEXEC, kChildFd + 1);
    close(pair[1]);
  }
  const int failed = SpawnCompiler(words, theirs, &pid_);
  close(theirs);
  if (failed != 0) {
    close(pair[0]);
    pid_ = -1;
    return {CUDA_ERROR_JIT_COMPILER_NOT_FOUND, "The PTX compiler '" + options_.command +
                                                   "' could not be started (" + strerror(failed) +
                                                   "); set RGPU_EMU_COMPILER to the command."};
  }
  fd_ = pair[0];
  ++generation_;
  return {};
}

// Sends one request and receives the body of its reply, which has the type `answer`.
Outcome CompilerClient::Ask(codec::MessageType type, std::span<const uint8_t> body,
                            codec::MessageType answer, std::vector<uint8_t>* reply) {
  if (Outcome connected = EnsureConnected(); !connected.ok()) return connected;
  const auto deadline = Clock::now() + std::chrono::seconds(options_.deadline_seconds);
  const std::vector<uint8_t> head = Encoded(codec::Head{type, body.size()});
  Io io = SendAll(fd_, head.data(), head.size(), deadline);
  if (io == Io::kDone) io = SendAll(fd_, body.data(), body.size(), deadline);
  uint8_t received[codec::Head::kBytes];
  if (io == Io::kDone) io = ReceiveAll(fd_, received, sizeof(received), deadline);
  if (io == Io::kDone) {
    wire::Reader reader(received, sizeof(received));
    codec::Head said;
    if (!codec::Get(reader, &said) || said.message != answer)
      return Lost("The PTX compiler sent an invalid reply.");
    reply->resize(said.body_bytes);
    io = ReceiveAll(fd_, reply->data(), said.body_bytes, deadline);
  }
  if (io == Io::kDone) return {};
  if (io == Io::kTimeout) {
    return Lost("The PTX compiler did not answer within " +
                std::to_string(options_.deadline_seconds) + " seconds.");
  }
  return Lost(
      "The PTX compiler '" + options_.command +
      "' ended before it answered; run it by hand to see why (it needs the package llvmlite).");
}

Outcome CompilerClient::Load(std::span<const std::string_view> ptx, LoadedModule* module) {
  LoadedModule loaded;
  loaded.source.inputs = Inputs(ptx);
  const std::vector<uint8_t> body = Encoded(loaded.source);
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<uint8_t> reply;
  if (Outcome asked = Ask(codec::Load::kType, body, codec::Loaded::kType, &reply); !asked.ok())
    return asked;
  Outcome outcome = DecodeLoaded(reply, &loaded);
  if (!outcome.ok()) return outcome;
  loaded.generation = generation_;
  *module = std::move(loaded);
  return {};
}

Outcome CompilerClient::Lower(LoadedModule* module, std::string_view entry, codec::Lowered* code) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (Outcome connected = EnsureConnected(); !connected.ok()) return connected;
  if (module->generation != generation_) {
    if (Outcome outcome = LoadAgain(module); !outcome.ok()) return outcome;
  }
  Outcome outcome = LowerNow(*module, entry, code);
  // The compiler has dropped the module to make room for other modules of its tenant.
  if (outcome.result != CUDA_ERROR_NOT_FOUND) return outcome;
  outcome = LoadAgain(module);
  return outcome.ok() ? LowerNow(*module, entry, code) : outcome;
}

Outcome CompilerClient::LoadAgain(LoadedModule* module) {
  std::vector<uint8_t> reply;
  const Outcome asked =
      Ask(codec::Load::kType, Encoded(module->source), codec::Loaded::kType, &reply);
  if (!asked.ok()) return asked;
  LoadedModule again;
  if (Outcome outcome = DecodeLoaded(reply, &again); !outcome.ok()) return outcome;
  module->key = again.key;
  module->generation = generation_;
  return {};
}

Outcome CompilerClient::LowerNow(const LoadedModule& module, std::string_view entry,
                                 codec::Lowered* code) {
  std::vector<uint8_t> reply;
  const std::vector<uint8_t> body = Encoded(codec::Lower{module.key, std::string(entry)});
  if (Outcome asked = Ask(codec::Lower::kType, body, codec::Lowered::kType, &reply); !asked.ok())
    return asked;
  return DecodeLowered(reply, code);
}

Outcome CompilerClient::Link(std::span<const std::string_view> ptx, codec::Linked* linked) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<uint8_t> reply;
  const std::vector<uint8_t> body = Encoded(codec::Link{Inputs(ptx)});
  if (Outcome asked = Ask(codec::Link::kType, body, codec::Linked::kType, &reply); !asked.ok())
    return asked;
  return DecodeLinked(reply, linked);
}

}  // namespace rgpu::emu
