#include "rgpu_common/native/transport/lane/lane_sender.h"

#include <errno.h>

#include <algorithm>
#include <array>

#include "rgpu_common/native/base/probe.h"

namespace rgpu::transport {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr int kParts = RecordWriter::kMaxParts;
// The largest record on a slow link. Later frames must wait for a record that was begun.
constexpr uint64_t kSmallRecordBytes = 128U << 10;
// A part of this size or more may be memory of the application.
constexpr size_t kForeignBytes = 4U << 10;

uint64_t Total(const iovec* parts, int count) {
  uint64_t total = 0;
  for (int i = 0; i < std::min(count, kParts); ++i) total += parts[i].iov_len;
  return total;
}

}  // namespace

LaneSender::LaneSender(const LaneOptions& options, LaneProgress& progress, LaneLink& link,
                       LaneReceiver& receiver)
    : options_(options),
      progress_(progress),
      lane_link_(link),
      receiver_(receiver),
      link_(link.current()) {}

IoResult LaneSender::TrySend(const iovec* parts, int count) {
  if (options_.discard && progress_.sent - progress_.acked > 2 * options_.ack_bytes) {
    receiver_.PumpInput();
  }
  IoResult result;
  std::shared_ptr<Connection> lost;
  {
    const std::lock_guard lock(mutex_);
    result = SendSome(parts, count);
    if (result.lost()) lost = link_;
  }
  if (lost != nullptr) {
    OnFailure(lost);
    return lane_link_.Verdict();
  }
  if (progress_.ack_due) Flush();
  return result;
}

// The functions below need the lock. Lend, TakeBack, Flush and SayEnd take it themselves. OnFailure
// does without it.
IoResult LaneSender::SendSome(const iovec* parts, int count) {
  if (!lane_link_.up()) return lane_link_.Verdict();
  window_.Release(std::min(progress_.acked.load(), resend_));
  if (resend_ != progress_.sent || record_.in_empty_record()) {
    const IoResult result = FlushLocked();
    if (!result.ok()) return result;
  }
  if (record_.idle()) {
    const uint64_t room =
        options_.window_bytes - std::min(options_.window_bytes, progress_.unacked());
    const uint64_t most = link_was_full_ ? kSmallRecordBytes : kMaxRecordBytes;
    const uint64_t bytes = std::min({Total(parts, count), room, most});
    if (bytes == 0) return {IoState::kWouldBlock, 0, 0};
    StartRecord(progress_.sent, bytes);
  }
  for (;;) {
    size_t sent = 0;
    const IoResult result = WriteRecord(parts, count, &sent);
    if (!result.ok() && result.state != IoState::kWouldBlock) return result;
    if (result.ok() && sent == 0) continue;  // only the header was sent: try the bytes again
    Keep(parts, count, sent);
    link_was_full_ = record_.left() > 0;
    if (record_.left() > 0) sent += KeepRest(parts, count, sent);
    return sent > 0 ? IoResult{IoState::kDone, sent, 0} : result;
  }
}

// Keeps the rest of a record that did not fit. The next thread that waits on the link sends it. An
// acknowledgement therefore need not wait for the record's sender, which may itself wait for the
// peer's bytes. Returns the number of bytes kept. Memory that cannot be read is not kept; its
// sender gets the fault when it sends on.
size_t LaneSender::KeepRest(const iovec* parts, int count, size_t sent) {
  std::array<iovec, kParts + 1> rest{};
  int used = 0;
  uint64_t bytes = 0;
  for (int i = 0; i < count && bytes < record_.left() && used <= kParts; ++i) {
    const size_t skip = std::min(sent, parts[i].iov_len);
    sent -= skip;
    const size_t here = std::min<uint64_t>(parts[i].iov_len - skip, record_.left() - bytes);
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

void LaneSender::StartRecord(uint64_t offset, uint64_t bytes) {
  record_.Begin({static_cast<uint32_t>(bytes), 0, offset, progress_.received});
  const uint64_t promised = std::max(progress_.promised.load(kRelaxed), offset + bytes);
  progress_.promised.store(promised, std::memory_order_release);
}

// Sends as much as fits of the record that was begun. `*sent` is the number of stream bytes in it.
IoResult LaneSender::WriteRecord(const iovec* parts, int count, size_t* sent) {
  const bool told = record_.header_sent();
  const IoResult result = record_.Write(*link_, parts, count, sent);
  if (!told && record_.header_sent()) NoteTold(record_.header().received);
  return result;
}

// Notes that a header with the acknowledgement `received` was sent. The order matters. A reader
// that takes more bytes meanwhile either sees the new `told` and sets ack_due itself, or its
// `received` is seen here.
void LaneSender::NoteTold(uint64_t received) {
  if (progress_.ack_due) progress_.ack_due = false;
  progress_.told.store(received, kRelaxed);
  if (progress_.received - progress_.told >= options_.ack_bytes) progress_.ack_due = true;
}

// Adds sent bytes to the window. They can be read, because the kernel has just read them.
void LaneSender::Keep(const iovec* parts, int count, size_t bytes) {
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
  progress_.sent.store(window_.end(), std::memory_order_release);
  resend_ = window_.end();
}

void LaneSender::Lend(const void* memory, size_t bytes) {
  const std::lock_guard lock(mutex_);
  lent_ = static_cast<const uint8_t*>(memory);
  lent_bytes_ = bytes;
}

void LaneSender::TakeBack(const void* memory, size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    window_.Release(std::min(progress_.acked.load(), resend_));
    window_.TakeBack(memory, bytes);
  }
  // Flush returns at once if another thread holds the lock. So this thread, which held it, sends an
  // acknowledgement that came due meanwhile.
  if (progress_.ack_due || progress_.output_due) Flush();
}

void LaneSender::Flush() {
  for (bool again = true; again;) {
    if (!mutex_.try_lock()) return;
    const IoResult result = FlushLocked();
    const std::shared_ptr<Connection> link = link_;
    mutex_.unlock();
    if (result.lost()) return OnFailure(link);
    again = result.ok() && progress_.ack_due;
  }
}

// kDone: nothing is left that is due.
IoResult LaneSender::FlushLocked() {
  if (!lane_link_.up()) return lane_link_.Verdict();
  const IoResult result = SendDue();
  SetOutputDue(!result.ok() || record_.in_empty_record());
  // In the middle of a record, only its sender may continue.
  if (result.ok() && !record_.idle()) return {IoState::kWouldBlock, 0, 0};
  return result;
}

// Sets output_due by one exchange, so that it is never false in between: a thread that is about to
// wait must see that it has to wait for room as well.
void LaneSender::SetOutputDue(bool due) {
  if (progress_.output_due.exchange(due) != due && due) link_->Wake();
}

IoResult LaneSender::SendDue() {
  IoResult result{IoState::kDone, 0, 0};
  size_t none = 0;
  if (record_.in_empty_record()) result = WriteRecord(nullptr, 0, &none);
  if (result.ok() && !record_.in_empty_record()) result = Resend();
  if (result.ok() && record_.idle() && progress_.ack_due) {
    StartRecord(progress_.sent, 0);
    result = WriteRecord(nullptr, 0, &none);
  }
  return result;
}

// Sends again the bytes that an earlier link took and the peer has not acknowledged.
IoResult LaneSender::Resend() {
  while (resend_ != progress_.sent) {
    if (record_.idle()) {
      resend_ = std::max(resend_, std::min(progress_.acked.load(), progress_.sent.load()));
      if (resend_ == progress_.sent) break;
      StartRecord(resend_, std::min<uint64_t>(progress_.sent - resend_, kMaxRecordBytes));
    }
    std::array<iovec, kParts> parts;
    const int count = window_.Gather(resend_, resend_ + record_.left(), parts.data(), kParts);
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
void LaneSender::OnFailure(const std::shared_ptr<Connection>& link) {
  if (unreadable_) {
    return lane_link_.Fail(
        "the program unmapped memory during a copy from it, and its bytes had to be sent again");
  }
  receiver_.PumpInput();
  lane_link_.Lost(link);
}

void LaneSender::SayEnd() {
  if (!mutex_.try_lock()) return;
  if (record_.idle() && resend_ == progress_.sent) {
    const RecordHeader end{0, kEndOfStream, progress_.sent, progress_.received};
    const iovec part{const_cast<RecordHeader*>(&end), sizeof end};
    link_->TrySend(&part, 1);
  }
  mutex_.unlock();
}

void LaneSender::Rewind(uint64_t received, bool ack_due) {
  progress_.told = progress_.received.load();
  if (received > progress_.acked) progress_.acked = received;
  resend_ = std::min(progress_.acked.load(), progress_.sent.load());
  progress_.promised = std::max(progress_.sent.load(), progress_.acked.load());
  record_.Reset();
  progress_.ack_due = ack_due;
  progress_.output_due = resend_ != progress_.sent;
}

}  // namespace rgpu::transport
