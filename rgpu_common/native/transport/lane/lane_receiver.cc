#include "rgpu_common/native/transport/lane/lane_receiver.h"

#include <algorithm>

namespace rgpu::transport {
namespace {

// After a record of this size or more, little is read ahead: another large record usually follows,
// and bytes that are read ahead are copied once more.
constexpr uint32_t kLargeRecordBytes = 64U << 10;

}  // namespace

LaneReceiver::LaneReceiver(const LaneOptions& options, LaneProgress& progress, LaneLink& link,
                           LaneReaders& readers)
    : options_(options),
      progress_(progress),
      lane_link_(link),
      readers_(readers),
      link_(link.current()) {}

void LaneReceiver::StartRecords(wire::ByteView ahead) {
  const std::lock_guard lock(mutex_);
  raw_.Start(ahead);
  NoteInput();
}

IoResult LaneReceiver::Receive(void* to, size_t bytes, How how) {
  IoResult result;
  std::shared_ptr<Connection> lost;
  {
    const std::lock_guard lock(mutex_);
    // Check again: a new link may have been attached meanwhile, with bytes that are due on it.
    if (how == How::kBlock && !readers_.may_block()) how = How::kTry;
    auto* at = static_cast<uint8_t*>(to);
    result = stash_.bytes() > 0 ? TakeStash(at, bytes, how) : Take(at, bytes, how);
    if (result.ok()) Taken(result.bytes);
    NoteInput();
    if (result.lost()) lost = link_;
  }
  if (lost != nullptr) OnFailure(lost);
  return result;
}

// The functions below need the lock. PumpInput takes it itself. OnFailure does without it.
IoResult LaneReceiver::TakeStash(uint8_t* to, size_t bytes, How how) {
  const size_t here = std::min(bytes, stash_.bytes());
  if (!CopyOut(to, stash_.data(), here, how)) return {IoState::kFault, 0, 0};
  stash_.Drop(here);
  return {IoState::kDone, here, 0};
}

IoResult LaneReceiver::Take(uint8_t* to, size_t bytes, How how) {
  size_t got = 0;
  IoResult result{IoState::kWouldBlock, 0, 0};
  while (got < bytes) {
    if (in_left_ == 0 || skip_ > 0) {
      result.state = NextRecord(bytes, got == 0, how);
      if (result.state != IoState::kDone) break;
    }
    const size_t here = std::min({in_left_, uint64_t{bytes - got}, uint64_t{raw_.bytes()}});
    if (here == 0) {
      result.state = IoState::kWouldBlock;
      if (!lane_link_.up() || (got > 0 && bytes - got < kDirectBytes)) break;
      if (got > 0 && how == How::kBlock) break;
      result = transport::Receive(*link_, to + got, std::min<uint64_t>(in_left_, bytes - got), how);
      if (result.ok()) {
        in_left_ -= result.bytes;
        got += result.bytes;
      }
      break;
    }
    if (!CopyOut(to + got, raw_.data(), here, how)) {
      result.state = IoState::kFault;
      break;
    }
    raw_.Drop(here);
    in_left_ -= here;
    got += here;
  }
  if (got > 0) return {IoState::kDone, got, 0};
  return result;
}

// Advances to the next byte that has not been received before. kDone: a record has bytes left.
IoState LaneReceiver::NextRecord(size_t hint, bool may_read, How how) {
  while (in_left_ == 0 || skip_ > 0) {
    size_t wanted = ReadAhead::kCapacity;
    if (skip_ > 0) {
      const size_t here = std::min<uint64_t>(skip_, raw_.bytes());
      raw_.Drop(here);
      skip_ -= here;
      in_left_ -= here;
      if (here > 0) continue;
      wanted = std::min<uint64_t>(skip_, ReadAhead::kCapacity);
    } else if (end_seen_) {
      return IoState::kClosed;
    } else if (raw_.bytes() >= kRecordHeaderBytes) {
      const auto header = raw_.Pop<RecordHeader>();
      broken_ = broken_ || !Accept(header);
      if (broken_) return IoState::kFailed;
      continue;
    } else if (large_) {
      wanted = kRecordHeaderBytes - raw_.bytes() + std::min(hint, kDirectBytes);
    }
    if (!may_read || !lane_link_.up()) return IoState::kWouldBlock;
    const IoState state = raw_.Refill(*link_, wanted, how);
    if (state != IoState::kDone) return state;
  }
  return IoState::kDone;
}

// Checks a record's header and takes it over. False: a correct peer does not send such a header.
bool LaneReceiver::Accept(const RecordHeader& header) {
  if (header.length > kMaxRecordBytes || header.flags > kEndOfStream || header.offset > next_ ||
      header.received > progress_.promised) {
    return false;
  }
  if (header.received > progress_.acked) {
    progress_.acked = header.received;
    readers_.OnAcknowledgement(*link_);
  }
  in_left_ = header.length;
  skip_ = std::min<uint64_t>(header.length, next_ - header.offset);
  next_ = std::max(next_, header.offset + header.length);
  if ((header.flags & kEndOfStream) != 0) end_seen_ = header.length == 0;
  if (header.length > 0) large_ = header.length >= kLargeRecordBytes;
  return next_ - progress_.received <= options_.window_bytes;
}

void LaneReceiver::Taken(size_t bytes) {
  // A load and a store are enough, because only the thread with the lock writes it.
  progress_.received.store(progress_.received.load(std::memory_order_relaxed) + bytes,
                           std::memory_order_release);
  if (progress_.received - progress_.told >= options_.ack_bytes) progress_.ack_due = true;
}

// Moves the stream's bytes from the read-ahead buffer to the stash. The stash never exceeds the
// window, because the peer may not send more.
void LaneReceiver::DrainRaw() {
  while (NextRecord(0, false, How::kTry) == IoState::kDone) {
    const size_t here = std::min<uint64_t>(in_left_, raw_.bytes());
    if (here == 0) return;
    if (options_.discard) {
      Taken(here);
    } else {
      stash_.Add(raw_.data(), here);
    }
    raw_.Drop(here);
    in_left_ -= here;
  }
}

void LaneReceiver::NoteInput() {
  const bool has = stash_.bytes() > 0 || raw_.bytes() >= kRecordHeaderBytes ||
                   (in_left_ > 0 && raw_.bytes() > 0);
  if (has != has_input_.load(std::memory_order_relaxed)) has_input_ = has;
}

void LaneReceiver::PumpInput() {
  std::shared_ptr<Connection> lost;
  {
    // The thread that holds the lock is reading, perhaps blocked in the link. It handles the
    // acknowledgements.
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return;
    IoState state = IoState::kDone;
    while (lane_link_.up() && state == IoState::kDone) {
      DrainRaw();
      const bool over = broken_ || end_seen_;
      state = over ? IoState::kClosed : raw_.Refill(*link_, ReadAhead::kCapacity, How::kTry);
    }
    DrainRaw();
    NoteInput();
    if (state != IoState::kDone && state != IoState::kWouldBlock) lost = link_;
  }
  if (lost != nullptr) OnFailure(lost);
}

void LaneReceiver::OnFailure(const std::shared_ptr<Connection>& link) {
  if (broken_) {
    return lane_link_.Fail(
        "the peer sent bytes that are not a record; install the same release of rgpu on both "
        "sides");
  }
  if (link->Malformed()) return lane_link_.Fail(link->LostReason());
  if (!end_seen_) return lane_link_.Lost(link);
  lane_link_.End(LaneLink::Phase::kEnded, "");
}

void LaneReceiver::Rewind() {
  DrainRaw();
  in_left_ = skip_ = 0;
  next_ = progress_.received + stash_.bytes();
  raw_.Clear();
  NoteInput();
}

}  // namespace rgpu::transport
