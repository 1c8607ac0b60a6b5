#include <sys/uio.h>

#include <algorithm>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/base/probe.h"
#include "rgpu_common/native/transport/frame_io.h"

namespace rgpu::transport {
namespace {

// How long to wait for room only, after the hook could not read. Then the hook is called again,
// because the thread that read may have stopped reading.
constexpr int kAskAgainMs = 5;
constexpr size_t kZeroBytes = 4096;
// A part of this size or more may be memory of the application.
constexpr size_t kForeignBytes = 4U << 10;

class Sender {
 public:
  Sender(Connection& connection, ReadHook* hook, int idle_timeout_ms)
      : connection_(connection), hook_(hook), idle_timeout_ms_(idle_timeout_ms) {}

  SendState Send(iovec* parts, int count);

 private:
  // Makes one TrySend and, if nothing fits, one wait. kSent: `*sent` bytes were sent, perhaps none.
  SendState Step(const iovec* parts, int count, size_t* sent);
  SendState WaitForRoom();
  // Sends zeros in place of a part that cannot be read.
  SendState SendZeros(size_t bytes);

  Connection& connection_;
  ReadHook* hook_;
  const int idle_timeout_ms_;
};

SendState Sender::WaitForRoom() {
  const base::Deadline deadline(idle_timeout_ms_);
  bool ask = hook_ != nullptr;
  for (;;) {
    int left = deadline.left_ms();
    if (left == 0) return SendState::kTimeout;
    if (hook_ != nullptr && !ask) left = left < 0 ? kAskAgainMs : std::min(left, kAskAgainMs);
    const int ready = connection_.Wait(ask ? kReadable | kWritable : kWritable, left);
    if ((ready & kWritable) != 0) return SendState::kSent;
    if ((ready & kReadable) != 0) {
      ask = hook_->OnReadable();
    } else {
      ask = hook_ != nullptr;
    }
  }
}

SendState Sender::Step(const iovec* parts, int count, size_t* sent) {
  *sent = 0;
  const IoResult result = connection_.TrySend(parts, count);
  switch (result.state) {
    case IoState::kDone:
      *sent = result.bytes;
      return SendState::kSent;
    case IoState::kWouldBlock:
      return WaitForRoom();
    case IoState::kFault:
      return SendState::kFault;
    default:
      return SendState::kClosed;
  }
}

SendState Sender::SendZeros(size_t bytes) {
  static uint8_t zeros[kZeroBytes];
  while (bytes > 0) {
    const iovec part{zeros, std::min(bytes, kZeroBytes)};
    size_t sent = 0;
    const SendState state = Step(&part, 1, &sent);
    if (state != SendState::kSent) return state;
    bytes -= sent;
  }
  return SendState::kSent;
}

bool IsThere(const iovec& part) {
  return part.iov_len < kForeignBytes || base::CanRead(part.iov_base, part.iov_len);
}

void Advance(iovec*& parts, int& count, size_t bytes) {
  while (count > 0 && bytes >= parts->iov_len) {
    bytes -= parts->iov_len;
    ++parts;
    --count;
  }
  if (count > 0) {
    parts->iov_base = static_cast<uint8_t*>(parts->iov_base) + bytes;
    parts->iov_len -= bytes;
  }
}

SendState Sender::Send(iovec* parts, int count) {
  const bool look = !connection_.checks_memory();
  bool faulty = look;  // a part may be unreadable: send the parts one by one to find out which
  bool zeroed = false;
  Advance(parts, count, 0);
  const iovec* looked_at = nullptr;
  while (count > 0) {
    size_t sent = 0;
    const bool bad = look && looked_at != parts && !IsThere(*parts);
    looked_at = parts;
    SendState state = bad ? SendState::kFault : Step(parts, faulty ? 1 : count, &sent);
    if (state == SendState::kFault) {
      if (!faulty && count > 1) {
        faulty = true;
        continue;
      }
      sent = parts->iov_len;
      state = SendZeros(sent);
      zeroed = true;
    }
    if (state != SendState::kSent) return state;
    Advance(parts, count, sent);
  }
  while (connection_.HasOutput()) {
    if (const SendState state = WaitForRoom(); state != SendState::kSent) return state;
  }
  return zeroed ? SendState::kFault : SendState::kSent;
}

}  // namespace

SendState SendAll(Connection& connection, iovec* parts, int count, ReadHook* hook,
                  int idle_timeout_ms) {
  return Sender(connection, hook, idle_timeout_ms).Send(parts, count);
}

}  // namespace rgpu::transport
