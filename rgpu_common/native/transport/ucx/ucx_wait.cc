// Waiting on a connection over UCX, and its end.
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/transport/ucx/ucx_connection.h"

namespace rgpu::transport::ucx {
namespace {

constexpr int kNoticed[] = {kReadable, kWritable, kHangup};
constexpr int kData = kReadable | kWritable | kHangup;
// UCX checks its peer only when it is called, so a long sleep is cut into slices.
constexpr int kSliceMs = 2000;
constexpr int kShutdownMs = 200;
constexpr int kFlushMs = 2000;
// The limit of UCX's orderly close, which waits for the peer. The peer may be stopped.
constexpr int kCloseMs = 300;

void Signal(int fd) {
  const uint64_t one = 1;
  ssize_t written = 0;
  do {
    written = write(fd, &one, sizeof one);
  } while (written < 0 && errno == EINTR);
}

bool TakeSignal(int fd) {
  uint64_t count = 0;
  return read(fd, &count, sizeof count) == sizeof count;
}

}  // namespace

int UcxConnection::Ready(int events) const {
  const bool gone = lost_ || closed_;
  int ready = 0;
  if (gone || held_ > 0 || peer_ended_) ready |= kReadable;
  const bool free =
      std::any_of(slots_.begin(), slots_.end(), [](const Slot& s) { return !s.busy; });
  if (gone || peer_left_ || (room_ > 0 && free)) ready |= kWritable;
  if (gone || peer_ended_) ready |= kHangup;
  return ready & events;
}

bool UcxConnection::Arm() {
  const Status status = api_.ucp_worker_arm(worker_);
  if (status == kBusy) return false;
  if (status != kOk) Lose(status);
  return true;
}

// Takes back the notices of `events`, which no longer hold.
void UcxConnection::Drain(int events) {
  for (size_t i = 0; i < notices_.size(); ++i) {
    if ((events & kNoticed[i]) != 0 && std::exchange(noted_[i], false))
      TakeSignal(notices_[i].get());
  }
}

void UcxConnection::Settle() {
  if (sleepers_ == 0) return;
  while (!Arm()) Progress();
  for (size_t i = 0; i < notices_.size(); ++i) {
    if (Ready(kNoticed[i]) != 0 && !std::exchange(noted_[i], true)) Signal(notices_[i].get());
  }
}

int UcxConnection::Wait(int events, int timeout_ms) {
  const int data = events & kData;
  const base::Deadline deadline(timeout_ms);
  for (;;) {
    if (data != 0) {
      const std::lock_guard lock(mutex_);
      if (!closed_) Progress();
      if (const int ready = Ready(data); ready != 0) {
        if (!closed_) Settle();
        return ready;
      }
      Drain(data);
      ++sleepers_;
      // Settle may find that an event holds now. It then signals the sleeping threads, this one
      // included.
      Settle();
    }
    const int left = deadline.left_ms();
    const bool cut = data != 0 && (left < 0 || left > kSliceMs);
    const int found = Sleep(events, cut ? kSliceMs : left);
    if (found != 0) return found;
    if (deadline.passed()) {
      if (data == 0) return 0;
      const std::lock_guard lock(mutex_);
      if (!closed_) Progress();
      if (!closed_) Settle();
      return Ready(data);
    }
  }
}

// Sleeps on the descriptors. Returns kWoken or 0; the caller checks which events hold.
int UcxConnection::Sleep(int events, int timeout_ms) {
  const auto when = [&](int event, int fd) {
    return pollfd{(events & event) != 0 ? fd : -1, POLLIN, 0};
  };
  pollfd fds[] = {
      when(kData, events_),
      when(kReadable, notices_[0].get()),
      when(kWritable, notices_[1].get()),
      when(kHangup, notices_[2].get()),
      when(kWoken, wake_.get()),
  };
  poll(fds, 5, timeout_ms);
  if ((events & kData) != 0) {
    const std::lock_guard lock(mutex_);
    --sleepers_;
  }
  // TakeSignal fails if another thread has taken this Wake.
  return fds[4].revents != 0 && TakeSignal(wake_.get()) ? kWoken : 0;
}

void UcxConnection::Wake() { Signal(wake_.get()); }

void UcxConnection::EndSending() {
  if (closed_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  if (std::exchange(ended_, true)) return;
  Say(&end_, Kind::kEnd, 0);
  Settle();
}

bool UcxConnection::Sending() const {
  return !lost_ &&
         (end_.busy || bye_.busy ||
          std::any_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.busy; }));
}

// Sleeps until UCX has an event to handle.
void UcxConnection::Turn(int timeout_ms) {
  {
    const std::lock_guard lock(mutex_);
    if (!Arm()) return;
  }
  pollfd wait{events_, POLLIN, 0};
  poll(&wait, 1, timeout_ms < 0 || timeout_ms > kSliceMs ? kSliceMs : timeout_ms);
}

// Lets UCX send the bytes that it holds, as the kernel does for a closed socket, but only until the
// time is up.
void UcxConnection::Flush(int timeout_ms) {
  const base::Deadline deadline(timeout_ms);
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      Progress();
      if (!Sending() || deadline.passed()) return;
    }
    Turn(deadline.left_ms());
  }
}

void UcxConnection::Shutdown() {
  if (closed_.exchange(true)) return;
  {
    const std::lock_guard lock(mutex_);
    Say(&bye_, Kind::kBye, 0);
    for (const base::UniqueFd& notice : notices_) Signal(notice.get());
    noted_ = {true, true, true};
  }
  Wake();
  Flush(kShutdownMs);
}

void UcxConnection::Abandon() {
  abandoned_ = true;
  closed_ = true;
}

std::string UcxConnection::LostReason() const {
  if (abandoned_) return {};
  const std::lock_guard lock(mutex_);
  return reason_;
}

// Waits for a request. False: the time is up, and UCX has not completed the request.
bool UcxConnection::Finish(void* request, int timeout_ms) {
  if (request == nullptr || FailureOf(request) != kOk) return true;
  const base::Deadline deadline(timeout_ms);
  while (api_.ucp_request_check_status(request) > kOk) {
    if (deadline.passed()) return false;
    if (api_.ucp_worker_progress(worker_) != 0) continue;
    if (api_.ucp_worker_arm(worker_) == kBusy) continue;
    pollfd wait{events_, POLLIN, 0};
    poll(&wait, 1, deadline.left_ms());
  }
  api_.ucp_request_free(request);
  return true;
}

// Sends BYE unless Shutdown has done so, waits until UCX has sent its bytes, and destroys the
// endpoint and the worker.
void UcxConnection::Close() {
  if (worker_ == nullptr) return;
  if (endpoint_ != nullptr) {
    {
      const std::lock_guard lock(mutex_);
      if (!closed_) Say(&bye_, Kind::kBye, 0);
    }
    Flush(kFlushMs);
    // Closing the endpoint ends outstanding receives, so that UCX no longer uses this object's
    // memory.
    RequestParams params{};
    params.field_mask = RequestParams::kFlags;
    params.flags = lost_ || peer_left_ || Sending() ? kCloseForce : 0;
    if (!Finish(api_.ucp_ep_close_nbx(endpoint_, &params), kCloseMs)) {
      // UCX still uses the endpoint, so the memory that it may access is leaked on purpose.
      for (Slot& slot : slots_) slot.data.release();
      ring_.release();
      return;
    }
  }
  api_.ucp_worker_destroy(worker_);
}

}  // namespace rgpu::transport::ucx
