#include "rgpu_server/executor/printed.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <mutex>

namespace rgpu::exec {

namespace {

constexpr size_t kChunkBytes = 16U << 10;
// A client that does not read loses output, nothing else.
constexpr size_t kMostQueued = 4U << 20;

int g_read_end = -1;
std::mutex g_mutex;

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
    wire::FrameHeader header;
    header.kind = wire::Kind::kNotice;
    header.opcode = static_cast<uint16_t>(wire::Notice::kLog);
    transport::FrameBuffer frame;
    wire::Writer writer = frame.Begin(header);
    writer.Put(uint32_t{0});
    writer.Put(wire::Bytes(text, static_cast<size_t>(got)));
    frame.End();
    outbox.Post(frame, false, 0);
  }
}

}  // namespace rgpu::exec
