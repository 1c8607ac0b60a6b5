// The sending half of a lane.
#include <errno.h>

#include <algorithm>
#include <array>

#include "rgpu_common/native/base/probe.h"
#include "rgpu_common/native/transport/lane/lane.h"

namespace rgpu::transport {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr int kParts = 128;
// The largest record on a slow link. Later frames must wait for a record that was begun.
constexpr uint64_t kSmallRecordBytes = 128U << 10;
// A part of this size or more may be memory of the application.
constexpr size_t kForeignBytes = 4U << 10;

uint64_t Total(const iovec* parts, int count) {
  uint64_t total = 0;
  for (int i = 0; i < std::min(count, kParts - 1); ++i) total += parts[i].iov_len;
  return total;
}

}  // namespace

IoResult Lane::TrySend(const iovec* parts, int count) {
  if (!records_) return send_link_->TrySend(parts, count);
  if (options_.discard && sent_ - acked_ > 2 * options_.ack_bytes) PumpInput();
  IoResult result;
  std::shared_ptr<Connection> lost;
  {
    const std::lock_guard send(send_mutex_);
    result = SendSome(parts, count);
    if (result.lost()) lost = send_link_;
  }
  if (lost != nullptr) {
    OnSendFailure(lost);
    return Verdict();
  }
  if (ack_due_) Flush();
  return result;
}

// The functions below need the send lock. Lend, TakeBack and Flush take it themselves. unacked,
// has_room and OnSendFailure do without it.
IoResult Lane::SendSome(const iovec* parts, int count) {
  if (!up()) return Verdict();
  window_.Release(std::min(acked_.load(), resend_));
  if (resend_ != sent_ || (header_left_ > 0 && record_left_ == 0)) {
    const IoResult result = FlushLocked();
    if (!result.ok()) return result;
  }
  if (header_left_ == 0 && record_left_ == 0) {
    const uint64_t room = options_.window_bytes - std::min(options_.window_bytes, unacked());
    const uint64_t most = link_was_full_ ? kSmallRecordBytes : kMaxRecordBytes;
    const uint64_t bytes = std::min({Total(parts, count), room, most});
    if (bytes == 0) return {IoState::kWouldBlock, 0, 0};
    StartRecord(sent_, bytes, 0);
  }
  for (;;) {
    size_t sent = 0;
    const IoResult result = WriteRecord(parts, count, &sent);
    if (!result.ok() && result.state != IoState::kWouldBlock) return result;
    if (result.ok() && sent == 0) continue;  // only the header was sent: try the bytes again
    Keep(parts, count, sent);
    link_was_full_ = record_left_ > 0;
    if (record_left_ > 0) sent += KeepRest(parts, count, sent);
    return sent > 0 ? IoResult{IoState::kDone, sent, 0} : result;
  }
}

// Keeps the rest of a record that did not fit. The next thread that waits on the link sends it. An
// acknowledgement therefore need not wait for the record's sender, which may itself wait for the
// peer's bytes. Returns the number of bytes kept. Memory that cannot be read is not kept; its
// sender gets the fault when it sends on.
size_t Lane::KeepRest(const iovec* parts, int count, size_t sent) {
  std::array<iovec, kParts> rest{};
  int used = 0;
  uint64_t bytes = 0;
  for (int i = 0; i < count && bytes < record_left_ && used < kParts; ++i) {
    const size_t skip = std::min(sent, parts[i].iov_len);
    sent -= skip;
    const size_t here = std::min<uint64_t>(parts[i].iov_len - skip, record_left_ - bytes);
    if (here == 0) continue;
    uint8_t* const data = static_cast<uint8_t*>(parts[i].iov_base) + skip;
    if (here >= kForeignBytes && !base::CanRead(data, here)) break;
    rest[static_cast<size_t>(used++)] = {data, here};
    bytes += here;
  }
  const uint64_t on_link = resend_;
  Keep(rest.data(), used, bytes);
  resend_ = on_link;
  if (bytes > 0) SetOutputDue(true);
  return bytes;
}

void Lane::StartRecord(uint64_t offset, uint64_t bytes, uint32_t flags) {
  header_ = {static_cast<uint32_t>(bytes), flags, offset, received_};
  header_left_ = kRecordHeaderBytes;
  record_left_ = bytes;
  const uint64_t promised = std::max(promised_.load(kRelaxed), offset + bytes);
  promised_.store(promised, std::memory_order_release);
}

// Sends as much as fits of the record that was begun. `*sent` is the number of stream bytes in it.
IoResult Lane::WriteRecord(const iovec* parts, int count, size_t* sent) {
  std::array<iovec, kParts> all;
  int used = 0;
  if (header_left_ > 0) {
    auto* header = reinterpret_cast<uint8_t*>(&header_) + kRecordHeaderBytes - header_left_;
    all[static_cast<size_t>(used++)] = {header, header_left_};
  }
  uint64_t left = record_left_;
  for (int i = 0; i < count && left > 0 && used < kParts; ++i) {
    const size_t here = std::min<uint64_t>(parts[i].iov_len, left);
    if (here > 0) all[static_cast<size_t>(used++)] = {parts[i].iov_base, here};
    left -= here;
  }
  const IoResult result = send_link_->TrySend(all.data(), used);
  // The record stays begun even if nothing was sent, because TLS may have encrypted it already.
  if (!result.ok()) return result;
  const size_t of_header = std::min(result.bytes, header_left_);
  *sent = result.bytes - of_header;
  record_left_ -= *sent;
  header_left_ -= of_header;
  if (of_header > 0 && header_left_ == 0) {
    // This order matters. A reader that takes more bytes meanwhile either sees the new told_ and
    // sets ack_due_ itself, or its received_ is seen here.
    if (ack_due_) ack_due_ = false;
    told_.store(header_.received, kRelaxed);
    if (received_ - told_ >= options_.ack_bytes) ack_due_ = true;
  }
  return result;
}

// Adds sent bytes to the window. They can be read, because the kernel has just read them.
void Lane::Keep(const iovec* parts, int count, size_t bytes) {
  for (int i = 0; i < count && bytes > 0; ++i) {
    const size_t here = std::min(parts[i].iov_len, bytes);
    const auto* data = static_cast<const uint8_t*>(parts[i].iov_base);
    if (lent_ != nullptr && data >= lent_ && data + here <= lent_ + lent_bytes_) {
      window_.Lend(data, here);
    } else {
      window_.Keep(data, here);
    }
    bytes -= here;
  }
  sent_.store(window_.end(), std::memory_order_release);
  resend_ = window_.end();
}

void Lane::Lend(const void* memory, size_t bytes) {
  const std::lock_guard send(send_mutex_);
  lent_ = static_cast<const uint8_t*>(memory);
  lent_bytes_ = bytes;
}

void Lane::TakeBack(const void* memory, size_t bytes) {
  {
    const std::lock_guard send(send_mutex_);
    window_.Release(std::min(acked_.load(), resend_));
    window_.TakeBack(memory, bytes);
  }
  // Flush returns at once if another thread holds the send lock. So this thread, which held it,
  // sends an acknowledgement that came due meanwhile.
  if (ack_due_ || output_due_) Flush();
}

// The bytes sent and not acknowledged. The peer may acknowledge more than sent_: bytes of a record
// that was begun on an earlier link.
uint64_t Lane::unacked() const {
  const uint64_t acked = acked_;
  const uint64_t sent = sent_;
  return sent - std::min(sent, acked);
}

bool Lane::has_room() const {
  return output_due_ || promised_ > sent_ || unacked() < options_.window_bytes;
}

// Sends acknowledgements and bytes that are due. If another thread is sending, that thread does so.
void Lane::Flush() {
  for (bool again = true; again;) {
    if (!send_mutex_.try_lock()) return;
    const IoResult result = FlushLocked();
    const std::shared_ptr<Connection> link = send_link_;
    send_mutex_.unlock();
    if (result.lost()) return OnSendFailure(link);
    again = result.ok() && ack_due_;
  }
}

// kDone: nothing is left that is due.
IoResult Lane::FlushLocked() {
  if (!up()) return Verdict();
  const IoResult result = SendDue();
  const bool due = !result.ok() || (header_left_ > 0 && record_left_ == 0);
  SetOutputDue(due);
  // In the middle of a record, only its sender may continue.
  if (result.ok() && (header_left_ > 0 || record_left_ > 0)) return {IoState::kWouldBlock, 0, 0};
  return result;
}

// Sets output_due_ by one exchange, so that it is never false in between: a thread that is about to
// wait must see that it has to wait for room as well.
void Lane::SetOutputDue(bool due) {
  if (output_due_.exchange(due) != due && due) send_link_->Wake();
}

IoResult Lane::SendDue() {
  IoResult result{IoState::kDone, 0, 0};
  size_t none = 0;
  if (header_left_ > 0 && record_left_ == 0) result = WriteRecord(nullptr, 0, &none);
  if (result.ok() && (header_left_ == 0 || record_left_ > 0)) result = Resend();
  const bool between = header_left_ == 0 && record_left_ == 0;
  if (result.ok() && between && ack_due_) {
    StartRecord(sent_, 0, 0);
    result = WriteRecord(nullptr, 0, &none);
  }
  return result;
}

// Sends again the bytes that an earlier link took and the peer has not acknowledged.
IoResult Lane::Resend() {
  while (resend_ != sent_) {
    if (header_left_ == 0 && record_left_ == 0) {
      resend_ = std::max(resend_, std::min(acked_.load(), sent_.load()));
      if (resend_ == sent_) break;
      StartRecord(resend_, std::min<uint64_t>(sent_ - resend_, kMaxRecordBytes), 0);
    }
    std::array<iovec, kParts - 1> parts;
    const int count = window_.Gather(resend_, resend_ + record_left_, parts.data(), kParts - 1);
    size_t sent = 0;
    const IoResult result = WriteRecord(parts.data(), count, &sent);
    if (result.state == IoState::kFault) {
      unreadable_ = true;
      return {IoState::kFailed, 0, EFAULT};
    }
    if (!result.ok()) return result;
    resend_ += sent;
  }
  return {IoState::kDone, 0, 0};
}

// The peer may have sent something before the link was lost, such as the end of the stream: read it
// first.
void Lane::OnSendFailure(const std::shared_ptr<Connection>& link) {
  if (unreadable_) {
    return Fail(
        "the program unmapped memory during a copy from it, and its bytes had to be sent again");
  }
  PumpInput();
  LinkLost(link);
}

}  // namespace rgpu::transport
