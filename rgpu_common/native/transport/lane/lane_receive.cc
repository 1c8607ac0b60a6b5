// The receiving half of a lane.
#include <algorithm>
#include <cstring>

#include "rgpu_common/native/base/probe.h"
#include "rgpu_common/native/transport/lane/lane.h"

namespace rgpu::transport {
namespace {

// When some bytes have been taken already, the link is read for more only if at least this many are
// still wanted.
constexpr size_t kDirectBytes = 4096;
// After a record of this size or more, little is read ahead: another large record usually follows,
// and bytes that are read ahead are copied once more.
constexpr uint32_t kLargeRecordBytes = 64U << 10;
constexpr size_t kSpareStashBytes = 1U << 20;

bool Copy(uint8_t* to, const uint8_t* from, size_t bytes, bool guarded) {
  if (guarded && !base::CanWrite(to, bytes)) return false;
  std::memcpy(to, from, bytes);
  return true;
}

}  // namespace

// Blocks in the link's Recv, which is one system call. A try, a wait and another try would be
// three.
IoResult Lane::Recv(void* to, size_t bytes, int timeout_ms) {
  if (!records_) return receive_link_->Recv(to, bytes, timeout_ms);
  if (timeout_ms >= 0) return Connection::Recv(to, bytes, timeout_ms);
  for (;;) {
    const bool block = BeginBlocking();
    const IoResult result = Receive(to, bytes, block ? How::kBlock : How::kTry);
    if (block) EndBlocking();
    if (result.state != IoState::kWouldBlock) return result;
    if (!block) Wait(kReadable, -1);
  }
}

// Registers a reader that will block. False: the thread must not block, because there is other work
// to do on the link.
bool Lane::BeginBlocking() {
  ++readers_;
  if (may_block()) return true;
  EndBlocking();
  return false;
}

// A thread that changes one of these conditions then checks readers_, or ends the link. Work that
// comes due while a reader blocks waits for at most one slice (kRecvSliceMs).
bool Lane::may_block() const { return up() && !reading_acks_ && !output_due_ && !displacing_; }

void Lane::EndBlocking() {
  if (--readers_ != 0 || full_waiters_ == 0) return;
  const std::lock_guard state(state_mutex_);
  changed_.notify_all();
}

IoResult Lane::Receive(void* to, size_t bytes, How how) {
  if (!records_) return receive_link_->TryRecv(to, bytes);
  IoResult result;
  std::shared_ptr<Connection> link;
  {
    const std::lock_guard receive(receive_mutex_);
    // Check again: a new link may have been attached meanwhile, with bytes that are due on it.
    if (how == How::kBlock && !may_block()) how = How::kTry;
    auto* at = static_cast<uint8_t*>(to);
    result = stash_bytes() > 0 ? TakeStash(at, bytes, how) : Take(at, bytes, how);
    if (result.ok()) Taken(result.bytes);
    NoteInput();
    if (result.lost()) link = receive_link_;
  }
  if (link != nullptr) OnReceiveFailure(link);
  if (ack_due_) Flush();
  return result.ok() || result.state == IoState::kFault ? result : Verdict();
}

// The functions below need the receive lock, except PumpInput and OnReceiveFailure.
IoResult Lane::TakeStash(uint8_t* to, size_t bytes, How how) {
  const size_t here = std::min(bytes, stash_bytes());
  if (!Copy(to, stash_.data() + stash_begin_, here, how == How::kGuarded)) {
    return {IoState::kFault, 0, 0};
  }
  stash_begin_ += here;
  if (stash_begin_ == stash_.size()) {
    stash_.clear();
    stash_begin_ = 0;
    if (stash_.capacity() > kSpareStashBytes) stash_.shrink_to_fit();
  }
  return {IoState::kDone, here, 0};
}

IoResult Lane::Take(uint8_t* to, size_t bytes, How how) {
  size_t got = 0;
  IoResult result{IoState::kWouldBlock, 0, 0};
  while (got < bytes) {
    if (in_left_ == 0 || skip_ > 0) {
      result.state = NextRecord(bytes, got == 0, how);
      if (result.state != IoState::kDone) break;
    }
    const size_t here = std::min({in_left_, uint64_t{bytes - got}, uint64_t{raw_bytes()}});
    if (here == 0) {
      result.state = IoState::kWouldBlock;
      if (!up() || (got > 0 && bytes - got < kDirectBytes)) break;
      if (got > 0 && how == How::kBlock) break;
      result = transport::Receive(*receive_link_, to + got,
                                  std::min<uint64_t>(in_left_, bytes - got), how);
      if (result.ok()) {
        in_left_ -= result.bytes;
        got += result.bytes;
      }
      break;
    }
    if (!Copy(to + got, raw_.get() + raw_begin_, here, how == How::kGuarded)) {
      result.state = IoState::kFault;
      break;
    }
    raw_begin_ += here;
    in_left_ -= here;
    got += here;
  }
  if (got > 0) return {IoState::kDone, got, 0};
  return result;
}

// Advances to the next byte that has not been received before. kDone: a record has bytes left.
IoState Lane::NextRecord(size_t hint, bool may_read, How how) {
  while (in_left_ == 0 || skip_ > 0) {
    size_t wanted = kReadAheadBytes;
    if (skip_ > 0) {
      const size_t here = std::min<uint64_t>(skip_, raw_bytes());
      raw_begin_ += here;
      skip_ -= here;
      in_left_ -= here;
      if (here > 0) continue;
      wanted = std::min<uint64_t>(skip_, kReadAheadBytes);
    } else if (end_seen_) {
      return IoState::kClosed;
    } else if (raw_bytes() >= kRecordHeaderBytes) {
      RecordHeader header;
      std::memcpy(&header, raw_.get() + raw_begin_, sizeof header);
      raw_begin_ += sizeof header;
      broken_ = broken_ || !Accept(header);
      if (broken_) return IoState::kFailed;
      continue;
    } else if (large_) {
      wanted = kRecordHeaderBytes - raw_bytes() + std::min(hint, kDirectBytes);
    }
    if (!may_read || !up()) return IoState::kWouldBlock;
    const IoState state = Refill(wanted, how);
    if (state != IoState::kDone) return state;
  }
  return IoState::kDone;
}

IoState Lane::Refill(size_t limit, How how) {
  if (raw_begin_ == raw_end_) {
    raw_begin_ = raw_end_ = 0;
  } else if (raw_begin_ > 0) {
    std::memmove(raw_.get(), raw_.get() + raw_begin_, raw_bytes());
    raw_end_ -= raw_begin_;
    raw_begin_ = 0;
  }
  const size_t bytes = std::min(limit, kReadAheadBytes - raw_end_);
  const IoResult result = transport::Receive(*receive_link_, raw_.get() + raw_end_, bytes,
                                             how == How::kGuarded ? How::kTry : how);
  if (result.ok()) raw_end_ += result.bytes;
  return result.state;
}

// Checks a record's header and takes it over. False: a correct peer does not send such a header.
bool Lane::Accept(const RecordHeader& header) {
  if (header.length > kMaxRecordBytes || header.flags > kEndOfStream || header.offset > next_ ||
      header.received > promised_) {
    return false;
  }
  if (header.received > acked_) {
    acked_ = header.received;
    if (awaiting_acks_) receive_link_->Wake();
    if (full_waiters_ > 0) {
      const std::lock_guard state(state_mutex_);
      changed_.notify_all();
    }
  }
  in_left_ = header.length;
  skip_ = std::min<uint64_t>(header.length, next_ - header.offset);
  next_ = std::max(next_, header.offset + header.length);
  if ((header.flags & kEndOfStream) != 0) end_seen_ = header.length == 0;
  if (header.length > 0) large_ = header.length >= kLargeRecordBytes;
  return next_ - received_ <= options_.window_bytes;
}

void Lane::Taken(size_t bytes) {
  // A load and a store are enough, because only the thread with the receive lock writes it.
  received_.store(received_.load(std::memory_order_relaxed) + bytes, std::memory_order_release);
  if (received_ - told_ >= options_.ack_bytes) ack_due_ = true;
}

void Lane::Stash(const uint8_t* data, size_t bytes) {
  if (options_.discard) return Taken(bytes);
  stash_.insert(stash_.end(), data, data + bytes);
}

// Moves the stream's bytes from the read-ahead buffer to the stash.
void Lane::DrainRaw() {
  while (NextRecord(0, false, How::kTry) == IoState::kDone) {
    const size_t here = std::min<uint64_t>(in_left_, raw_bytes());
    if (here == 0) return;
    Stash(raw_.get() + raw_begin_, here);
    raw_begin_ += here;
    in_left_ -= here;
  }
}

void Lane::NoteInput() {
  const bool has =
      stash_bytes() > 0 || raw_bytes() >= kRecordHeaderBytes || (in_left_ > 0 && raw_bytes() > 0);
  if (has != has_input_.load(std::memory_order_relaxed)) has_input_ = has;
}

// Receives everything that has arrived on the link, to get at the acknowledgements. The stash never
// exceeds the window, because the peer may not send more.
void Lane::PumpInput() {
  std::shared_ptr<Connection> lost;
  {
    // The thread that holds the lock is reading, perhaps blocked in the link. It handles the
    // acknowledgements.
    const std::unique_lock receive(receive_mutex_, std::try_to_lock);
    if (!receive.owns_lock()) return;
    IoState state = IoState::kDone;
    while (up() && state == IoState::kDone) {
      DrainRaw();
      state = broken_ || end_seen_ ? IoState::kClosed : Refill(kReadAheadBytes, How::kTry);
    }
    DrainRaw();
    NoteInput();
    if (state != IoState::kDone && state != IoState::kWouldBlock) lost = receive_link_;
  }
  if (lost != nullptr) OnReceiveFailure(lost);
}

void Lane::OnReceiveFailure(const std::shared_ptr<Connection>& link) {
  if (broken_) {
    return Fail(
        "the peer sent bytes that are not a record; install the same release of rgpu on both "
        "sides");
  }
  if (link->Malformed()) return Fail(link->LostReason());
  if (!end_seen_) return LinkLost(link);
  const std::lock_guard state(state_mutex_);
  SetPhase(Phase::kEnded, "");
}

}  // namespace rgpu::transport
