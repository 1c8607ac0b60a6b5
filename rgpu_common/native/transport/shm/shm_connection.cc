#include "rgpu_common/native/transport/shm/shm_connection.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/base/cpus.h"

namespace rgpu::transport {
namespace {

using base::kMillisecond;

// After so many sleeps, the number of usable processors is read again, because the affinity of a
// process may change while it runs.
constexpr uint64_t kSleepsPerLook = 64;
constexpr size_t kDoorbellBytes = 256;

// Takes the doorbells that have arrived, in one read. If a peer rings without end, the rest only
// wakes this end once more.
void DrainDoorbells(int socket) {
  uint8_t bytes[kDoorbellBytes];
  while (recv(socket, bytes, sizeof bytes, MSG_DONTWAIT) < 0 && errno == EINTR) {
  }
}

bool HasHungUp(int socket) {
  pollfd look{socket, POLLRDHUP, 0};
  return poll(&look, 1, 0) > 0;
}

}  // namespace

ShmConnection::ShmConnection(std::unique_ptr<SocketConnection> socket, Side side)
    : socket_(std::move(socket)), side_(side), spin_(base::UsableCpus()) {}

IoResult ShmConnection::Gone() const {
  const int error = error_.load();
  return {error == 0 ? IoState::kClosed : IoState::kFailed, 0, error};
}

// The peer wrote an impossible value into the control words: the connection ends for good.
IoResult ShmConnection::Broken() {
  error_ = EPROTO;
  Shutdown();
  return Gone();
}

IoResult ShmConnection::TrySend(const iovec* parts, int count) {
  if (!switched()) return socket_->TrySend(parts, count);
  if (closed_.load(std::memory_order_relaxed)) return Gone();
  LookAfterPeer();
  if (peer_gone_.load(std::memory_order_relaxed)) return {IoState::kClosed, 0, 0};
  const RingResult result = rings_->writer.Write(parts, count);
  if (result.state == RingState::kDone) return {IoState::kDone, result.bytes, 0};
  if (result.state == RingState::kBroken) return Broken();
  return {IoState::kWouldBlock, 0, 0};
}

IoResult ShmConnection::TryRecv(void* to, size_t bytes) {
  if (!switched()) {
    return expects_.load() ? ReceiveWithDescriptors(to, bytes) : socket_->TryRecv(to, bytes);
  }
  if (closed_.load(std::memory_order_relaxed)) return Gone();
  // Load this before reading the ring, so that bytes that the peer wrote before its end are still
  // read.
  const bool gone = peer_gone_.load(std::memory_order_acquire);
  const RingResult result = rings_->reader.Read(to, bytes);
  if (result.state == RingState::kDone) return {IoState::kDone, result.bytes, 0};
  if (result.state == RingState::kBroken) return Broken();
  if (gone) return {IoState::kClosed, 0, 0};
  LookAfterPeer();
  return {IoState::kWouldBlock, 0, 0};
}

IoResult ShmConnection::Recv(void* to, size_t bytes, int timeout_ms) {
  if (!switched() && !expects_.load()) return socket_->Recv(to, bytes, timeout_ms);
  return Connection::Recv(to, bytes, timeout_ms);
}

void ShmConnection::LookAfterPeer() {
  const uint64_t now = base::NowNs();
  if (now - looked_ns_.load(std::memory_order_relaxed) < kMillisecond) return;
  looked_ns_.store(now, std::memory_order_relaxed);
  if (HasHungUp(socket_->socket())) peer_gone_.store(true, std::memory_order_release);
}

void ShmConnection::Ring() {
  const uint8_t bell = 1;
  // If the socket is full, the peer has doorbells to read and wakes up anyway.
  while (send(socket_->socket(), &bell, 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

int ShmConnection::Ready(int events) {
  int ready = 0;
  const bool over = closed_.load() || peer_gone_.load();
  if ((events & kReadable) != 0 && (over || rings_->reader.HasBytes())) ready |= kReadable;
  if ((events & kWritable) != 0 &&
      (over || rings_->writer.HasRoom(RoomToGoOn(rings_->writer.size())))) {
    ready |= kWritable;
  }
  if (over) ready |= events & kHangup;
  if ((events & kWoken) != 0 && woken_.load(std::memory_order_relaxed) && woken_.exchange(false)) {
    ready |= kWoken;
  }
  return ready;
}

int ShmConnection::Wait(int events, int timeout_ms) {
  if (!switched()) return socket_->Wait(events, timeout_ms);
  if (const int ready = Ready(events); ready != 0) return ready;
  if (timeout_ms == 0) {
    LookAfterPeer();
    return Ready(events);
  }
  // A thread that waits only for the end does not spin, and its wait teaches nothing about waits
  // for bytes.
  if ((events & (kReadable | kWritable)) == 0) return Sleep(events, timeout_ms);
  const uint64_t start = base::NowNs();
  uint64_t budget = spin_.Budget();
  if (timeout_ms > 0) budget = std::min(budget, static_cast<uint64_t>(timeout_ms) * kMillisecond);
  if (budget > 0) {
    if (const int ready = Look(events, start, start + budget); ready != 0) return ready;
  }
  const int ready = Sleep(events, timeout_ms);
  spin_.Slept(base::NowNs() - start, budget);
  if (sleeps_.fetch_add(1, std::memory_order_relaxed) % kSleepsPerLook == 0) {
    spin_.set_cpus(base::UsableCpus());
  }
  return ready;
}

int ShmConnection::Look(int events, uint64_t start_ns, uint64_t until_ns) {
  for (uint64_t now = start_ns; now < until_ns; now = base::NowNs()) {
    SpinStep(now - start_ns);
    if (const int ready = Ready(events); ready != 0) {
      spin_.Found(base::NowNs() - start_ns);
      return ready;
    }
  }
  return 0;
}

// The sleeping threads of this end share one doorbell. It is emptied only while none of them
// sleeps: a thread that has checked the ring and is about to sleep must not miss a doorbell that
// arrives in between.
void ShmConnection::FallAsleep(int data) {
  const std::lock_guard lock(sleepers_mutex_);
  if (asleep_for_bytes_ + asleep_for_room_ == 0) DrainDoorbells(socket_->socket());
  if ((data & kReadable) != 0) {
    ++asleep_for_bytes_;
    rings_->reader.SaySleeping();
  }
  if ((data & kWritable) != 0) {
    ++asleep_for_room_;
    rings_->writer.SaySleeping();
  }
}

void ShmConnection::StandUp(int data) {
  const std::lock_guard lock(sleepers_mutex_);
  if ((data & kReadable) != 0 && --asleep_for_bytes_ == 0) rings_->reader.SayAwake();
  if ((data & kWritable) != 0 && --asleep_for_room_ == 0) rings_->writer.SayAwake();
}

int ShmConnection::Sleep(int events, int timeout_ms) {
  const int data = events & (kReadable | kWritable);
  // Only threads that wait for bytes or for room are woken by doorbells.
  const short bells = data != 0 ? POLLIN | POLLRDHUP : POLLRDHUP;
  const bool listens = data != 0 || (events & kHangup) != 0;
  const base::Deadline deadline(timeout_ms);
  for (;;) {
    FallAsleep(data);
    int ready = Ready(events);
    pollfd fds[2] = {{listens ? socket_->socket() : -1, bells, 0},
                     {(events & kWoken) != 0 ? socket_->wake() : -1, POLLIN, 0}};
    int polled = 0;
    if (ready == 0) polled = poll(fds, 2, deadline.left_ms());
    StandUp(data);
    if (ready != 0) return ready;
    // The descriptor is bad: the next send or receive fails.
    if (polled < 0 && errno != EINTR) return data | (events & kHangup);
    if ((fds[0].revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0) peer_gone_ = true;
    if ((fds[1].revents & POLLIN) != 0) {
      uint64_t wakes = 0;
      // Empty the counter before Ready takes the flag, so that no Wake is lost in between.
      [[maybe_unused]] const ssize_t ignored = read(socket_->wake(), &wakes, sizeof wakes);
    }
    ready = Ready(events);
    if (ready != 0 || deadline.passed()) return ready;
    // The doorbell was for another thread. That thread must leave its sleep before the doorbell can
    // be emptied, so let it run.
    if (polled > 0) sched_yield();
  }
}

void ShmConnection::Wake() {
  woken_.store(true);
  socket_->Wake();
}

void ShmConnection::Shutdown() {
  closed_ = true;
  woken_.store(true);
  socket_->Shutdown();
}

void ShmConnection::Abandon() {
  closed_ = true;
  segment_.Forget();
  socket_->Abandon();
}

}  // namespace rgpu::transport
