// The receiving half of the channel: which thread reads, and what each kind of frame does.
#include <algorithm>
#include <optional>

#include "rgpu_client/shim/channel.h"
#include "rgpu_client/shim/interrupts.h"
#include "rgpu_client/shim/pump.h"
#include "rgpu_common/native/base/clock.h"

namespace rgpu::shim {

using transport::BulkState;
using transport::ReadState;
using wire::ByteView;
using wire::FrameHeader;

// Reads frames, or waits for the thread that does, until done() holds or the session is lost.
// done() is evaluated with receive_mutex_.
template <typename Done>
void Channel::ReadUntil(std::condition_variable& wake, Done done) {
  const Waits waits;
  std::unique_lock lock(receive_mutex_);
  while (!done() && !lost_) {
    if (leading_) {
      wake.wait(lock);
      continue;
    }
    leading_ = true;
    while (!done() && !lost_) {
      lock.unlock();
      FrameHeader header;
      ByteView head;
      const ReadState state = reader_->Next(&header, &head, -1);
      if (state == ReadState::kFrame) Handle(header, head);
      if (state == ReadState::kClosed) Lost(LostSentence("the server ended the connection"));
      if (state == ReadState::kMalformed) Lost("the server sent bytes that are not a frame");
      lock.lock();
    }
    if (!lost_) {
      lock.unlock();
      // Handle the frames that arrived together with the answer. They lie in the reader's memory,
      // so no other thread would notice them before more bytes arrive.
      ReadBuffered();
      lock.lock();
    }
    leading_ = false;
    HandOver();
    return;
  }
}

// Handles the whole frames that the reader has already read into memory.
bool Channel::ReadBuffered() {
  FrameHeader header;
  ByteView head;
  while (reader_->has_buffered()) {
    const ReadState state = reader_->Next(&header, &head, 0);
    if (state != ReadState::kFrame || !Handle(header, head)) return false;
  }
  return true;
}

// Called when the leader stops reading: wakes one waiting thread, which becomes the leader. With
// receive_mutex_.
void Channel::HandOver() {
  for (Waiter* waiter : waiters_) {
    if (IsAnswered(*waiter)) continue;
    waiter->wake.notify_one();
    return;
  }
  if (watchers_ > 0) progress_.notify_one();
}

bool Channel::ReadWithoutBlocking() {
  {
    const std::lock_guard lock(receive_mutex_);
    if (leading_ || lost_) return false;
    leading_ = true;
  }
  FrameHeader header;
  ByteView head;
  ReadState state;
  while ((state = reader_->Next(&header, &head, 0)) == ReadState::kFrame && Handle(header, head)) {
  }
  if (state == ReadState::kClosed) Lost(LostSentence("the server ended the connection"));
  if (state == ReadState::kMalformed) Lost("the server sent bytes that are not a frame");
  const std::lock_guard lock(receive_mutex_);
  leading_ = false;
  HandOver();
  return true;
}

void Channel::Poll() { ReadWithoutBlocking(); }

void Channel::AwaitEnd(int timeout_ms) {
  const base::Deadline deadline(timeout_ms);
  FrameHeader header;
  ByteView head;
  while (sticky() == CUDA_SUCCESS &&
         reader_->Next(&header, &head, deadline.left_ms()) == ReadState::kFrame) {
    Handle(header, head);
  }
}

// Exists while the leader copies bytes into memory of the program, or into a sink on the stack of a
// waiting thread.
class Channel::Landing {
 public:
  // The caller holds receive_mutex_, under which it found the target memory.
  Landing(Channel* channel, uint64_t seq) : channel_(channel) {
    channel_->landing_ = true;
    channel_->landing_seq_ = seq;
  }
  ~Landing() {
    const std::lock_guard lock(channel_->receive_mutex_);
    channel_->landing_ = false;
    if (channel_->lost_) channel_->landing_over_.notify_all();
  }
  Landing(const Landing&) = delete;
  Landing& operator=(const Landing&) = delete;

 private:
  Channel* const channel_;
};

// A thread whose write failed may declare the connection lost while the leader still copies bytes.
// A thread that would then free the target memory waits here until the copy has ended. The wait is
// short, because the connection is shut down.
void Channel::WaitForLanding(std::unique_lock<std::mutex>& lock) {
  landing_over_.wait(lock, [&] { return !lost_ || !landing_; });
}

CUresult Channel::WaitForReply(Waiter& waiter) {
  ReadUntil(waiter.wake, [&] { return IsAnswered(waiter); });
  std::unique_lock lock(receive_mutex_);
  WaitForLanding(lock);
  std::erase(waiters_, &waiter);
  return IsAnswered(waiter) ? static_cast<CUresult>(waiter.status) : sticky();
}

CUresult Channel::WaitForCredit(const PostOptions& options) {
  if (!options.counted) return CUDA_SUCCESS;
  const Credits& credits = options.stream->credits;
  if (credits.Has(options.credit_bytes, limits_)) return CUDA_SUCCESS;
  Flush();
  {
    const std::lock_guard lock(receive_mutex_);
    ++watchers_;
  }
  // After a sticky error the worker may never return credits, so the error ends the wait as well.
  ReadUntil(progress_,
            [&] { return credits.Has(options.credit_bytes, limits_) || sticky_.load() != 0; });
  const std::lock_guard lock(receive_mutex_);
  --watchers_;
  return sticky();
}

CUresult Channel::WaitForDeliveries(uint64_t address, uint64_t bytes) {
  if (expects_deliveries()) {
    Flush();
    {
      const std::lock_guard lock(receive_mutex_);
      ++watchers_;
    }
    ReadUntil(progress_, [&] { return !ExpectedMeets(address, bytes) || sticky_.load() != 0; });
    const std::lock_guard lock(receive_mutex_);
    --watchers_;
  }
  const CUresult status = sticky();
  if (status != CUDA_SUCCESS) {
    std::unique_lock lock(receive_mutex_);
    WaitForLanding(lock);
  }
  return status;
}

// The connection's own reason for its end if it has one, else the server's, else `plain`.
std::string Channel::LostSentence(const char* plain) const {
  std::string reason = connection_->LostReason();
  if (reason.empty() && !leaving_) reason = handler_->WhyEnded();
  return reason.empty() ? plain : reason;
}

// Returns false if the frame ended the session: what the server sent after it is not believed.
bool Channel::Handle(const FrameHeader& header, ByteView head) {
  bulk_bytes_.fetch_add(header.bulk_bytes, std::memory_order_relaxed);
  bool understood = true;
  switch (header.kind) {
    case wire::Kind::kReply:
      HandleReply(header, head);
      break;
    case wire::Kind::kData:
      understood = HandleData(header, head);
      break;
    case wire::Kind::kDelivery:
      understood = HandleDelivery(header, head);
      break;
    case wire::Kind::kNotice:
      understood = HandleNotice(header, head);
      break;
    default:
      understood = false;
  }
  // A handler also fails when the connection ends within a frame; LostSentence then gives the
  // reason.
  if (understood) return true;
  Lost(LostSentence(wrong_ != nullptr ? wrong_
                                      : "the server sent a frame that makes no sense here"));
  return false;
}

// What a handler returns that can say what is wrong with the frame.
bool Channel::Wrong(const char* why) {
  wrong_ = why;
  return false;
}

void Channel::HandleReply(const FrameHeader& header, ByteView head) {
  Acknowledge(header.seq);
  const std::lock_guard lock(receive_mutex_);
  for (Waiter* waiter : waiters_) {
    if (waiter->seq != header.seq) continue;
    waiter->head->assign(head.data, head.data + head.size);
    waiter->status = header.status;
    waiter->watermark = header.watermark;
    waiter->done = true;
    // If the waiter is the leader itself, this wakes no thread: none waits on its condition.
    waiter->wake.notify_one();
    return;
  }
}

void Channel::Acknowledge(uint64_t seq) {
  if (seq > acknowledged_.load(std::memory_order_relaxed)) {
    acknowledged_.store(seq, std::memory_order_relaxed);
  }
}

bool Channel::HandleData(const FrameHeader& header, ByteView head) {
  wire::Reader reader(head.data, head.size);
  uint64_t offset = 0;
  reader.Get(&offset);
  if (!reader.done()) return false;
  ReplySink* sink = nullptr;
  std::optional<Landing> landing;
  {
    const std::lock_guard lock(receive_mutex_);
    for (const Waiter* waiter : waiters_) {
      if (waiter->seq == header.seq && !waiter->done) sink = waiter->sink;
    }
    if (sink == nullptr) return false;
    landing.emplace(this, header.seq);
  }
  return sink->OnData(offset, header.bulk_bytes, *reader_);
}

bool Channel::HandleDelivery(const FrameHeader& header, ByteView head) {
  wire::Reader reader(head.data, head.size);
  uint64_t offset = 0;
  reader.Get(&offset);
  if (!reader.done()) return false;
  HostRegion region;
  uint64_t start = 0;
  std::shared_ptr<const void> keep;
  HostCall failed;
  std::optional<Landing> landing;
  {
    const std::lock_guard lock(receive_mutex_);
    const auto it = expected_.find(header.seq);
    if (it == expected_.end()) return false;
    if (!FindTarget(it->second, header, offset, &region, &start)) return false;
    keep = it->second.keep;
    failed = it->second.call;
    if (header.bulk_bytes > 0) landing.emplace(this, header.seq);
  }
  if (header.bulk_bytes > 0 &&
      Land(region, start, header.bulk_bytes, *reader_) == BulkState::kClosed) {
    return false;
  }
  landing.reset();
  Finish(header.seq, 0, (header.flags & wire::kLast) != 0);
  // The worker could not put it into its stream. No other stream may wait for that place.
  if (failed.point != nullptr) handler_->OnCallback(0, failed, CUDA_ERROR_UNKNOWN);
  return true;
}

void Channel::SetSticky(CUresult status, std::string_view sentence) {
  int none = 0;
  if (status == CUDA_SUCCESS) return;
  if (sticky_.compare_exchange_strong(none, static_cast<int>(status))) {
    handler_->OnSticky(status, sentence);
    FailCallbacks(status);
    const std::lock_guard lock(receive_mutex_);
    progress_.notify_all();
  }
}

// A thread that waits for a reply reads the connection, sees it end, and wakes the others.
void Channel::End(std::string_view sentence) {
  // A process that is ending sets the error without a message: the loss no longer matters to it.
  int none = 0;
  if (leaving_) sticky_.compare_exchange_strong(none, CUDA_ERROR_EXTERNAL_DEVICE);
  SetSticky(CUDA_ERROR_EXTERNAL_DEVICE, sentence);
  connection_->Shutdown();
}

// Shuts the connection down for good, and wakes every waiting thread with the sticky error.
void Channel::Lost(std::string_view sentence) {
  End(sentence);
  const std::lock_guard lock(receive_mutex_);
  lost_ = true;
  expected_.clear();
  expected_count_ = 0;
  for (Waiter* waiter : waiters_) waiter->wake.notify_one();
  progress_.notify_all();
  Pump::Wake(*this);
}

}  // namespace rgpu::shim
