// Waiting on a lane.
//
// Any number of threads that wait to read wait on the link itself. Threads that wait to write do
// the same while the window has room. When the window is full, a thread must read the
// acknowledgements: a reader if there is one, or else one of the waiting threads. The other threads
// then wait on changed_, as all threads do while there is no link.
#include <algorithm>
#include <chrono>

#include "rgpu_common/native/transport/lane/lane.h"

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

int Lane::Wait(int events, int timeout_ms) {
  if (!records_) return link()->Wait(events, timeout_ms);
  base::Deadline deadline(timeout_ms);
  Lock state(state_mutex_);
  for (bool first = true;; first = false) {
    if ((events & kWoken) != 0 && woken_.exchange(false)) return kWoken;
    const bool cut = phase() == Phase::kCut;
    const bool over = !cut && !up();
    if (over && (events & kData) != 0) return events & kData;
    if ((events & kReadable) != 0 && has_input_) return kReadable;
    const int left_ms = deadline.left_ms();
    if (left_ms == 0 && !first) return 0;
    if (cut && grace_.passed()) {
      SetPhase(Phase::kFailed, GraceSentence());
    } else if (cut || over || displaced_ != nullptr) {
      if (left_ms == 0) return 0;
      WaitForChange(state, cut ? Least(left_ms, grace_.left_ms()) : left_ms);
      if (cut && timeout_ms >= kSilenceMs) deadline = base::Deadline(timeout_ms);
    } else if (const int ready = WaitOnLink(state, events, left_ms); ready != 0) {
      return ready;
    }
  }
}

std::string Lane::GraceSentence() const {
  return "the connection was cut and not resumed within the " +
         std::to_string(options_.grace_ms / 1000) + " s of resume_grace";
}

// Releases the lock while it waits, as all functions below do.
void Lane::WaitForChange(Lock& state, int timeout_ms) {
  if (timeout_ms < 0) {
    changed_.wait(state);
  } else {
    changed_.wait_for(state, std::chrono::milliseconds(timeout_ms));
  }
}

// Waits on the link. Returns those of `events` that hold, or 0 when the time has passed or the
// lane's state may have changed.
int Lane::WaitOnLink(Lock& state, int events, int timeout_ms) {
  if ((events & kData) == 0 && !output_due_) {
    WaitForChange(state, timeout_ms);
    return 0;
  }
  const bool reads = (events & kReadable) != 0;
  const bool full = (events & kWritable) != 0 && !has_room();
  if (full && !reads) {
    WaitForRoom(state, timeout_ms);
    return 0;
  }
  if (reads && reading_acks_) {
    WaitForChange(state, timeout_ms);
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
  if (reads) ++readers_;
  int ready = WaitAndFlush(state, wanted, timeout_ms);
  if (reads && --readers_ == 0 && full_waiters_ > 0) changed_.notify_all();
  if ((ready & kWoken) != 0 && ((events & kWoken) == 0 || !woken_.exchange(false))) {
    ready &= ~kWoken;
  }
  return ready & events;
}

// Waits on the link, and sends the bytes that wait for room in it. A thread that finds the link
// full wakes a thread that waits here, which then waits for room as well.
int Lane::WaitAndFlush(Lock& state, int wanted, int timeout_ms) {
  const std::shared_ptr<Connection> link = link_;
  state.unlock();
  int ready = link->Wait(output_due_ ? wanted | kWritable : wanted, timeout_ms);
  if ((ready & kWritable) != 0 && output_due_) {
    Flush();
    if (output_due_) ready &= ~kWritable;
  }
  state.lock();
  return ready;
}

void Lane::WaitForRoom(Lock& state, int timeout_ms) {
  const bool first = !reading_acks_.exchange(true);
  if (!first || readers_ > 0) {
    if (first) reading_acks_ = false;
    ++full_waiters_;
    if (!has_room() && (readers_ > 0 || reading_acks_)) WaitForChange(state, timeout_ms);
    --full_waiters_;
    return;
  }
  awaiting_acks_ = true;
  // Check for room again: another thread may have read an acknowledgement just now.
  const int ready = has_room() ? 0 : WaitAndFlush(state, kReadable | kWoken, timeout_ms);
  awaiting_acks_ = false;
  state.unlock();
  if ((ready & kReadable) != 0) PumpInput();
  if (ack_due_) Flush();
  state.lock();
  reading_acks_ = false;
  changed_.notify_all();
}

bool Lane::AwaitCut() {
  for (;;) {
    std::shared_ptr<Connection> link;
    {
      Lock state(state_mutex_);
      if (phase() == Phase::kCut) return true;
      if (!up()) return false;
      link = link_;
      const int events = kHangup | (options_.discard ? kReadable : 0);
      const int ready = WaitOnLink(state, events, -1);
      if (ready == 0 || link != link_) continue;
      state.unlock();
      PumpInput();
      if (ack_due_) Flush();
      if ((ready & kHangup) != 0) LinkLost(link);
    }
  }
}

}  // namespace rgpu::transport
