#include "rgpu_server/executor/printed.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <mutex>
#include <set>
#include <string>

#include "gen/notices.gen.h"
#include "rgpu_server/executor/notice.h"

namespace rgpu::exec {

namespace {

constexpr size_t kChunkBytes = 16U << 10;
// If the client does not read, output beyond this is dropped.
constexpr size_t kMostQueued = 4U << 20;
constexpr size_t kReasonBytes = 1800;
constexpr size_t kMostReasons = 256;
// Levels of a LOG notice: output of kernels, the reason of an error, and a warning.
constexpr uint32_t kOutput = 0;
constexpr uint32_t kSentence = 1;
constexpr uint32_t kWarning = 2;

int g_read_end = -1;
std::mutex g_mutex;

void SendLog(transport::Outbox& outbox, uint32_t level, std::string_view text) {
  const wire::FrameHeader header = NoticeHeader(wire::Notice::kLog);
  transport::FrameBuffer frame;
  wire::Writer writer = frame.Begin(header);
  Put(writer, wire::Log{level, wire::Bytes(text)});
  frame.End();
  outbox.Post(frame, false, 0);
}

}  // namespace

bool CapturePrinted() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  std::fflush(stdout);
  const bool moved = dup2(ends[1], STDOUT_FILENO) >= 0;
  close(ends[1]);
  g_read_end = ends[0];
  setvbuf(stdout, nullptr, _IOLBF, 0);
  return moved;
}

int PrintedFd() { return g_read_end; }

void ForwardPrinted(transport::Outbox& outbox) {
  if (g_read_end < 0) return;
  std::lock_guard lock(g_mutex);
  char text[kChunkBytes];
  for (;;) {
    const ssize_t got = read(g_read_end, text, sizeof text);
    if (got <= 0) return;
    if (outbox.queued_bytes() > kMostQueued) continue;
    SendLog(outbox, kOutput, {text, static_cast<size_t>(got)});
  }
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
