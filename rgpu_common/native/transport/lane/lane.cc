#include "rgpu_common/native/transport/lane/lane.h"

#include <errno.h>

#include <algorithm>
#include <cstring>

namespace rgpu::transport {

Lane::Lane(std::unique_ptr<Connection> link, const LaneOptions& options, LaneWatcher* watcher)
    : options_(options),
      watcher_(watcher),
      kind_(link->kind()),
      checks_memory_(link->checks_memory()),
      link_(std::move(link)),
      bare_link_(link_.get()),
      send_link_(link_),
      receive_link_(link_) {}

Lane::~Lane() = default;

void Lane::StartRecords(wire::ByteView ahead) {
  const std::lock_guard receive(receive_mutex_);
  raw_ = std::make_unique_for_overwrite<uint8_t[]>(kReadAheadBytes);
  raw_end_ = std::min<size_t>(ahead.size, kReadAheadBytes);
  if (raw_end_ > 0) std::memcpy(raw_.get(), ahead.data, raw_end_);
  checks_memory_ = receive_link_->checks_memory();
  records_ = true;
  NoteInput();
}

std::shared_ptr<Connection> Lane::link() const {
  const std::lock_guard state(state_mutex_);
  return link_;
}

// The result of a send or a receive that can move no bytes in the present phase.
IoResult Lane::Verdict() const {
  switch (phase()) {
    case Phase::kUp:
    case Phase::kCut:
      return {IoState::kWouldBlock, 0, 0};
    case Phase::kFailed:
      return {IoState::kFailed, 0, ETIMEDOUT};
    default:
      return {IoState::kClosed, 0, 0};
  }
}

void Lane::LinkLost(const std::shared_ptr<Connection>& link) {
  {
    const std::lock_guard state(state_mutex_);
    if (link != link_ || link == displaced_ || !up()) return;
    phase_ = Phase::kCut;
    grace_ = base::Deadline(options_.grace_ms);
    ++stats_.cuts;
    changed_.notify_all();
  }
  link->Shutdown();  // wakes the threads that wait on it
  if (watcher_ != nullptr) watcher_->OnCut();
}

// Sets the phase, unless the lane has ended already. With the state lock.
void Lane::SetPhase(Phase phase, std::string_view reason) {
  const Phase before = phase_.load();
  if (before != Phase::kUp && before != Phase::kCut) return;
  phase_ = phase;
  if (reason_.empty()) reason_ = reason;
  changed_.notify_all();
}

int Lane::grace_left_ms() const {
  const std::lock_guard state(state_mutex_);
  return phase() == Phase::kCut ? grace_.left_ms() : options_.grace_ms;
}

void Lane::Fail(std::string_view reason) {
  std::shared_ptr<Connection> old;
  {
    const std::lock_guard state(state_mutex_);
    SetPhase(Phase::kFailed, reason);
    old = link_;
  }
  old->Shutdown();
}

std::string Lane::LostReason() const {
  const std::lock_guard state(state_mutex_);
  return reason_;
}

LaneStats Lane::stats() const {
  const std::lock_guard state(state_mutex_);
  return stats_;
}

AttachState Lane::Attach(std::unique_ptr<Connection>& link, uint32_t epoch, uint64_t received,
                         const std::function<bool(Connection&, uint64_t)>& greet) {
  if (const AttachState state = Displace(epoch, received); state != AttachState::kAttached) {
    return state;
  }
  {
    const std::lock_guard receive(receive_mutex_);
    const std::lock_guard send(send_mutex_);
    if (!StillNewer(epoch)) return AttachState::kStale;
    DrainRaw();
    in_left_ = skip_ = 0;
    next_ = received_ + stash_bytes();
    raw_begin_ = raw_end_ = 0;
    NoteInput();
    told_ = received_.load();
    if (received > acked_) acked_ = received;
    resend_ = std::min(acked_.load(), sent_.load());
    promised_ = std::max(sent_.load(), acked_.load());
    header_left_ = 0;
    record_left_ = 0;
    // Without a greeting, the peer knows only what was taken when the link was requested. More may
    // have been taken since, and the peer may wait for that acknowledgement.
    ack_due_ = !greet;
    output_due_ = resend_ != sent_;
    const bool greeted = !greet || greet(*link, received_);
    const std::lock_guard state(state_mutex_);
    const bool moved = displaced_ != nullptr;
    displaced_ = nullptr;
    displacing_ = false;
    changed_.notify_all();
    if (!up() && phase() != Phase::kCut) return AttachState::kGone;
    ++(moved ? stats_.moves : stats_.resumes);
    stats_.resent_bytes += sent_ - resend_;
    Enter(link, epoch);
    if (!greeted) link_->Shutdown();
  }
  if (watcher_ != nullptr) watcher_->OnLink();
  Flush();
  return AttachState::kAttached;
}

// Checks that a new link may replace the present one, and shuts the present one down, so that a
// reader that blocks in it releases its lock.
AttachState Lane::Displace(uint32_t epoch, uint64_t received) {
  std::shared_ptr<Connection> old;
  {
    const std::lock_guard state(state_mutex_);
    if (!up() && phase() != Phase::kCut) return AttachState::kGone;
    if (epoch <= epoch_) return AttachState::kStale;
    if (received > promised_) return AttachState::kMismatch;
    old = link_;
    if (up()) {
      displaced_ = old;
      displacing_ = true;
    }
  }
  old->Shutdown();
  return AttachState::kAttached;
}

// False: a newer link was attached while this thread waited for the locks.
bool Lane::StillNewer(uint32_t epoch) const {
  const std::lock_guard state(state_mutex_);
  return epoch > epoch_;
}

// Makes `link` the lane's link. With all locks.
void Lane::Enter(std::unique_ptr<Connection>& link, uint32_t epoch) {
  // A child that is forked meanwhile abandons the link that bare_link_ points to. `old` keeps the
  // previous link alive until bare_link_ points to the new one.
  const std::shared_ptr<Connection> old = link_;
  epoch_ = epoch;
  bare_link_ = link.get();
  link_ = std::move(link);
  receive_link_ = send_link_ = link_;
  kind_ = link_->kind();
  checks_memory_ = link_->checks_memory();
  phase_ = Phase::kUp;
}

void Lane::Wake() {
  woken_ = true;
  std::shared_ptr<Connection> here;
  {
    const std::lock_guard state(state_mutex_);
    here = link_;
    changed_.notify_all();
  }
  here->Wake();
}

void Lane::Shutdown() {
  std::shared_ptr<Connection> here;
  bool said = false;
  {
    const std::lock_guard state(state_mutex_);
    said = !up() || !records_;
    SetPhase(Phase::kClosed, "");
    here = link_;
  }
  if (!said && send_mutex_.try_lock()) {
    // Tell the peer that the stream ends in good order, if the link has room, so that the peer does
    // not wait for a resume.
    if (header_left_ == 0 && record_left_ == 0 && resend_ == sent_) {
      const RecordHeader end{0, kEndOfStream, sent_, received_};
      const iovec part{const_cast<RecordHeader*>(&end), sizeof end};
      send_link_->TrySend(&part, 1);
    }
    send_mutex_.unlock();
  }
  here->Shutdown();
}

// Takes no locks: in a forked child, the threads that hold them do not exist.
void Lane::Abandon() {
  phase_ = Phase::kClosed;
  bare_link_.load()->Abandon();
}

}  // namespace rgpu::transport
