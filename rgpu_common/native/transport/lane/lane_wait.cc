#include "rgpu_common/native/transport/lane/lane_wait.h"

#include <algorithm>
#include <memory>

#include "rgpu_common/native/base/clock.h"

namespace rgpu::transport {
namespace {

constexpr int kData = kReadable | kWritable | kHangup;
// The longest time in which a thread that waits to read and to write may miss that the window has
// room.
constexpr int kRoomMs = 2;
// A time limit of at least this guards against a silent peer. A cut is not silence, so it restarts
// such a limit.
constexpr int kSilenceMs = 10000;

int Least(int a_ms, int b_ms) {
  if (a_ms < 0) return b_ms;
  return b_ms < 0 ? a_ms : std::min(a_ms, b_ms);
}

}  // namespace

int LaneWait::Wait(int events, int timeout_ms) {
  base::Deadline deadline(timeout_ms);
  LaneLink::Lock lock(link_.mutex());
  for (bool first = true;; first = false) {
    if ((events & kWoken) != 0 && woken_.exchange(false)) return kWoken;
    const bool cut = link_.cut();
    const bool over = !cut && !link_.up();
    if (over && (events & kData) != 0) return events & kData;
    if ((events & kReadable) != 0 && receiver_.has_input()) return kReadable;
    const int left_ms = deadline.left_ms();
    if (left_ms == 0 && !first) return 0;
    if (cut && link_.FailAfterGrace()) continue;
    if (cut || over || link_.displaced()) {
      if (left_ms == 0) return 0;
      link_.WaitForChange(lock, cut ? Least(left_ms, link_.grace().left_ms()) : left_ms);
      if (cut && timeout_ms >= kSilenceMs) deadline = base::Deadline(timeout_ms);
    } else if (const int ready = WaitOnLink(lock, events, left_ms); ready != 0) {
      return ready;
    }
  }
}

void LaneWait::Wake() {
  woken_ = true;
  link_.Notify()->Wake();
}

// Waits on the link. Returns those of `events` that hold, or 0 when the time has passed or the
// lane's state may have changed.
int LaneWait::WaitOnLink(LaneLink::Lock& lock, int events, int timeout_ms) {
  if ((events & kData) == 0 && !progress_.output_due) {
    link_.WaitForChange(lock, timeout_ms);
    return 0;
  }
  const bool reads = (events & kReadable) != 0;
  const bool full = (events & kWritable) != 0 && !has_room();
  if (full && !reads) {
    WaitForRoom(lock, timeout_ms);
    return 0;
  }
  if (reads && readers_.reading_acks()) {
    link_.WaitForChange(lock, timeout_ms);
    return 0;
  }
  int wanted = events & kData;
  if (full) {
    wanted &= ~kWritable;
    // Limit the wait, because another reader may take the acknowledgement that makes room, even
    // just before this thread waits.
    timeout_ms = Least(timeout_ms, kRoomMs);
  }
  // Wake() ends the wait of a reader, or of a caller that asked for kWoken. Others see a change
  // only at the end of their wait.
  if (reads || (events & kWoken) != 0) wanted |= kWoken;
  if (reads) readers_.BeginWait();
  int ready = WaitAndFlush(lock, wanted, timeout_ms);
  if (reads) readers_.EndWait();
  if ((ready & kWoken) != 0 && ((events & kWoken) == 0 || !woken_.exchange(false))) {
    ready &= ~kWoken;
  }
  return ready & events;
}

// Waits on the link, and sends the bytes that wait for room in it. A thread that finds the link
// full wakes a thread that waits here, which then waits for room as well.
int LaneWait::WaitAndFlush(LaneLink::Lock& lock, int wanted, int timeout_ms) {
  const std::shared_ptr<Connection> link = link_.locked_current();
  lock.unlock();
  int ready = link->Wait(progress_.output_due ? wanted | kWritable : wanted, timeout_ms);
  if ((ready & kWritable) != 0 && progress_.output_due) {
    sender_.Flush();
    if (progress_.output_due) ready &= ~kWritable;
  }
  lock.lock();
  return ready;
}

void LaneWait::WaitForRoom(LaneLink::Lock& lock, int timeout_ms) {
  if (!readers_.BeginReadingAcks()) return readers_.WaitForAck(lock, timeout_ms);
  readers_.set_awaiting_acks(true);
  // Check for room again: another thread may have read an acknowledgement just now.
  const int ready = has_room() ? 0 : WaitAndFlush(lock, kReadable | kWoken, timeout_ms);
  readers_.set_awaiting_acks(false);
  lock.unlock();
  if ((ready & kReadable) != 0) receiver_.PumpInput();
  if (progress_.ack_due) sender_.Flush();
  lock.lock();
  readers_.EndReadingAcks();
}

bool LaneWait::AwaitCut() {
  for (;;) {
    LaneLink::Lock lock(link_.mutex());
    if (link_.cut()) return true;
    if (!link_.up()) return false;
    const std::shared_ptr<Connection> link = link_.locked_current();
    const int events = kHangup | (options_.discard ? kReadable : 0);
    const int ready = WaitOnLink(lock, events, -1);
    if (ready == 0 || link != link_.locked_current()) continue;
    lock.unlock();
    receiver_.PumpInput();
    if (progress_.ack_due) sender_.Flush();
    if ((ready & kHangup) != 0) link_.Lost(link);
  }
}

}  // namespace rgpu::transport
