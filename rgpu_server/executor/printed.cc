#include "rgpu_server/executor/printed.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <set>
#include <string>

#include "gen/notices.gen.h"
#include "rgpu_common/native/base/log.h"
#include "rgpu_server/executor/notice.h"

// Of a sanitizer, if there is one.
extern "C" __attribute__((weak)) void __sanitizer_set_report_fd(void* fd);

namespace rgpu::exec {

namespace {

constexpr size_t kChunkBytes = 16U << 10;
// If the client does not read, output beyond this is dropped.
constexpr size_t kMostQueued = 4U << 20;
constexpr size_t kReasonBytes = 1800;
constexpr size_t kMostReasons = 256;
// Levels of a LOG notice: output of kernels on stdout, the reason of an error, a warning, and
// output of kernels on stderr.
constexpr uint32_t kOutput = 0;
constexpr uint32_t kSentence = 1;
constexpr uint32_t kWarning = 2;
constexpr uint32_t kErrorOutput = 3;

// What was stderr before; the log goes there.
int g_log = STDERR_FILENO;
int g_read_end = -1;
int g_errors_read_end = -1;
std::mutex g_mutex;

void SendLog(transport::Outbox& outbox, uint32_t level, std::string_view text) {
  const wire::FrameHeader header = NoticeHeader(wire::Notice::kLog);
  transport::FrameBuffer frame;
  wire::Writer writer = frame.Begin(header);
  Put(writer, wire::Log{level, wire::Bytes(text)});
  frame.End();
  outbox.Post(frame, false, 0);
}

// Makes `fd` the write end of a new pipe. Returns the read end; -1: no descriptor is left.
int Capture(int fd) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  const bool moved = dup2(ends[1], fd) >= 0;
  close(ends[1]);
  if (moved) return ends[0];
  close(ends[0]);
  return -1;
}

// What libraries say on stderr before they abort the process belongs into the log. abort() ends the
// process after this.
void SaveLastWords(int) {
  char text[kChunkBytes];
  for (;;) {
    const ssize_t got = read(g_errors_read_end, text, sizeof text);
    if (got <= 0 || write(g_log, text, static_cast<size_t>(got)) < 0) return;
  }
}

void CaptureErrors(const Driver& driver) {
  const int log = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (log < 0) return;
  g_log = log;
  base::SetLogDescriptor(log);
  if (driver.log_to != nullptr) driver.log_to(log);
  if (__sanitizer_set_report_fd != nullptr) {
    __sanitizer_set_report_fd(reinterpret_cast<void*>(static_cast<intptr_t>(log)));
  }
  g_errors_read_end = Capture(STDERR_FILENO);
  std::signal(SIGABRT, SaveLastWords);
}

void Forward(transport::Outbox& outbox, int read_end, uint32_t level) {
  char text[kChunkBytes];
  while (read_end >= 0) {
    const ssize_t got = read(read_end, text, sizeof text);
    if (got <= 0) return;
    if (outbox.queued_bytes() > kMostQueued) continue;
    SendLog(outbox, level, {text, static_cast<size_t>(got)});
  }
}

}  // namespace

bool CapturePrinted(const Driver& driver) {
  std::fflush(stdout);
  g_read_end = Capture(STDOUT_FILENO);
  setvbuf(stdout, nullptr, _IOLBF, 0);
  CaptureErrors(driver);
  return g_read_end >= 0 && g_errors_read_end >= 0;
}

int PrintedFd() { return g_read_end; }
int PrintedErrorsFd() { return g_errors_read_end; }

void ForwardPrinted(transport::Outbox& outbox) {
  std::lock_guard lock(g_mutex);
  Forward(outbox, g_read_end, kOutput);
  Forward(outbox, g_errors_read_end, kErrorOutput);
}

void ForwardReason(const Driver& driver, transport::Outbox& outbox) {
  if (driver.reason == nullptr) return;
  char text[kReasonBytes];
  const size_t bytes = driver.reason(text, sizeof text);
  if (bytes == 0) return;
  std::lock_guard lock(g_mutex);
  static std::set<std::string> sent;
  if (sent.size() < kMostReasons && sent.emplace(text, bytes).second) {
    SendLog(outbox, kSentence, {text, bytes});
  }
}

void SendWarning(transport::Outbox& outbox, std::string_view sentence) {
  SendLog(outbox, kWarning, sentence);
}

}  // namespace rgpu::exec
