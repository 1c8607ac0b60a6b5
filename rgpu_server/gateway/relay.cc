#include "rgpu_server/gateway/relay.h"

#include <poll.h>

#include <atomic>
#include <functional>
#include <memory>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_server/gateway/threads.h"

namespace rgpu::gateway {
namespace {

using transport::Connection;
using transport::IoResult;
using transport::IoState;

// While the receiver takes no bytes, a way checks so often whether their sender has gone.
constexpr int kSenderLookMs = 1000;

struct Way {
  Connection& from;
  Connection& to;
  std::atomic<bool>& ended;  // true once one of the two ways has ended
  int from_fd;               // the sender's socket; -1: it is not checked
  int linger_ms;
  std::atomic<uint64_t>& carried;
  const std::function<void(bool)>& answered;  // see Relay; empty: not called
};

bool SourceGone(const Way& way) {
  pollfd source{way.from_fd, 0, 0};
  return way.from_fd >= 0 && poll(&source, 1, 0) > 0;
}

// Waits until the receiver takes bytes.  False: the sender has gone or the other way has ended, and
// the receiver has taken nothing for linger_ms since.
bool WaitForRoom(const Way& way) {
  base::Deadline deadline(-1);
  bool leaving = false;
  for (;;) {
    if (!leaving && (way.ended || SourceGone(way))) {
      leaving = true;
      deadline = base::Deadline(way.linger_ms);
    }
    // A peer whose machine is gone is found by the connection itself.
    if (way.to.Wait(transport::kWritable, kSenderLookMs) != 0) return true;
    if (leaving && deadline.passed()) return false;
  }
}

bool SendAll(const Way& way, const uint8_t* data, size_t bytes) {
  while (bytes > 0) {
    const iovec part{const_cast<uint8_t*>(data), bytes};
    const IoResult sent = way.to.TrySend(&part, 1);
    if (sent.ok()) {
      way.carried += sent.bytes;
      data += sent.bytes;
      bytes -= sent.bytes;
    } else if (sent.state == IoState::kWouldBlock) {
      if (!WaitForRoom(way)) return false;
    } else {
      return false;
    }
  }
  return true;
}

// True: the stream ended in order.
bool Carry(const Way& way, uint8_t* buffer) {
  bool any = false;
  for (;;) {
    const IoResult got = way.from.TryRecv(buffer, kRelayBytes);
    if (got.ok()) {
      if (!any && way.answered) way.answered(true);
      any = true;
      if (!SendAll(way, buffer, got.bytes)) return false;
    } else if (got.state == IoState::kWouldBlock) {
      const int timeout_ms = way.ended ? way.linger_ms : -1;
      const int events = transport::kReadable | transport::kWoken;
      if (way.from.Wait(events, timeout_ms) == 0) return false;
    } else {
      return got.state == IoState::kClosed;
    }
  }
}

void Run(const Way& way) {
  const auto buffer = std::make_unique_for_overwrite<uint8_t[]>(kRelayBytes);
  const bool in_order = Carry(way, buffer.get());
  way.ended = true;
  if (way.answered) way.answered(false);
  if (in_order) {
    way.to.EndSending();
    // The other way reads from `to`, and looks at its time again.
    way.to.Wake();
    return;
  }
  way.from.Shutdown();
  way.to.Shutdown();
}

}  // namespace

void Relay(Connection& client, Connection& inner, int inner_fd, int linger_ms, Figures* figures,
           const std::function<void(bool)>& answered) {
  std::atomic<bool> ended{false};
  const std::function<void(bool)> nobody;
  const Way up{client, inner, ended, -1, linger_ms, figures->received, nobody};
  const Way down{inner, client, ended, inner_fd, linger_ms, figures->sent, answered};
  Thread other;
  if (!other.Start([&down] { Run(down); })) return;
  ++figures->open;
  Run(up);
  other.Join();
  --figures->open;
}

}  // namespace rgpu::gateway
