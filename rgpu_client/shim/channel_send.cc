// The sending half of the channel.
#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "rgpu_client/shim/channel.h"
#include "rgpu_client/shim/flusher.h"
#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/base/memory.h"

namespace rgpu::shim {

Channel::Channel(std::unique_ptr<transport::Connection> connection,
                 std::unique_ptr<transport::FrameReader> reader, NoticeHandler* handler,
                 unsigned session)
    : connection_(std::move(connection)),
      reader_(std::move(reader)),
      handler_(handler),
      session_(session) {
  reader_->set_guarded(true);  // bulk lands at addresses of the application, which may be bad
  buffer_.reserve(4 * kBatchBytes);
  sending_.reserve(4 * kBatchBytes);
}

void Channel::SetMissing(const std::vector<uint16_t>& opcodes) {
  for (const uint16_t opcode : opcodes) {
    if (opcode >= missing_.size()) missing_.resize(opcode + 1U);
    missing_[opcode] = true;
  }
}

CUresult Channel::Ready(Opcode opcode) const {
  if (const CUresult status = sticky(); status != CUDA_SUCCESS) return status;
  return Lacks(opcode) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

wire::Writer Channel::Begin(const Issuer& issuer, Opcode opcode, uint8_t flags) {
  wire::FrameHeader header;
  header.opcode = static_cast<uint16_t>(opcode);
  header.kind = wire::Kind::kCommand;
  header.flags = flags;
  header.seq = seq_.load(std::memory_order_relaxed) + 1;
  header.thread = issuer.thread->number;
  header.context = issuer.context;
  seq_.store(header.seq, std::memory_order_relaxed);
  SentBy(issuer).spoke = true;
  return buffer_.Begin(header);
}

// False: the head is too long for a frame (a name may have any length). The command is then removed
// from the buffer, and the next command gets its sequence number.
bool Channel::Fits() {
  if (buffer_.fits()) return true;
  buffer_.Cancel();
  seq_.store(seq_.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
  return false;
}

// Ends the frame. False: the bulk cannot be read, and zeros are sent in its place.
bool Channel::End(const PostOptions& options) {
  bulk_bytes_.fetch_add(options.bulk_bytes, std::memory_order_relaxed);
  if (options.bulk_bytes == 0) {
    buffer_.End();
    return true;
  }
  // GuardedCopy lets the kernel read the application's pointer: a bad pointer gives an error, not a
  // crash.
  std::array<uint8_t, kDirectBulkBytes> bulk;
  const bool good = base::GuardedCopy(bulk.data(), options.bulk, options.bulk_bytes);
  if (!good) std::memset(bulk.data(), 0, options.bulk_bytes);
  buffer_.EndWithBulk(bulk.data(), options.bulk_bytes);
  return good;
}

void Channel::EndCall(const Issuer& issuer, Waiter& waiter, bool reports) {
  buffer_.End();
  syncs_.fetch_add(1, std::memory_order_relaxed);
  waiter.seq = seq_.load(std::memory_order_relaxed);
  if (reports) SentBy(issuer).reported_seq = waiter.seq;
  const std::lock_guard receive(receive_mutex_);
  if (lost_) {
    waiter.done = true;
    waiter.status = sticky_.load();
  } else {
    waiters_.push_back(&waiter);
  }
}

// Records a posted command that Begin has just started: credit, busy stream and context, thread.
void Channel::Account(const Issuer& issuer, const PostOptions& options) {
  const uint64_t seq = seq_.load(std::memory_order_relaxed);
  SentBy(issuer).posted_seq = seq;
  last_posted_.store(seq, std::memory_order_release);
  if (options.counted) options.stream->credits.Take(options.credit_bytes, limits_);
  if (options.stream != nullptr) options.stream->progress.version = seq;
  if (options.work != nullptr) options.work->work_seq = seq;
  if (options.seq != nullptr) *options.seq = seq;
}

void Channel::Expect(Expected expected) {
  const std::lock_guard receive(receive_mutex_);
  expected_.emplace(seq_.load(std::memory_order_relaxed), std::move(expected));
  expected_count_.fetch_add(1);
}

// Sends the buffer at once if the channel is idle or four batches have collected. Otherwise the
// flusher sends it, and always if it need only be sent `soon`.
CUresult Channel::AfterAppend(std::unique_lock<std::mutex>& append, bool soon) {
  const uint64_t now = base::NowNs();
  const bool first = buffer_.frames() == 1;
  const bool full = buffer_.frames() >= kBatchCommands || buffer_.size() >= kBatchBytes;
  const bool most = buffer_.frames() >= 4 * kBatchCommands || buffer_.size() >= 4 * kBatchBytes;
  const uint64_t seq = seq_.load(std::memory_order_relaxed);
  // Commands that need only be sent soon do not make the channel busy.
  const bool leads = first || buffer_is_soon_;
  buffer_is_soon_ = leads && soon;
  const bool idle = leads && !soon &&
                    (acknowledged_.load(std::memory_order_relaxed) + buffer_.frames() >= seq ||
                     now - last_append_ns_ > kIdleNs);
  last_append_ns_ = now;
  if (first) buffered_since_ns_.store(now, std::memory_order_relaxed);
  append.unlock();
  if (full) buffer_full_.store(true, std::memory_order_relaxed);
  if (most || idle || ((first || full) && !Flusher::Arm(this))) Flush();
  return CUDA_SUCCESS;
}

// Sends the buffered frames, and after them the bulk straight from the caller's memory.
CUresult Channel::SendDirect(std::unique_lock<std::mutex>& append, const PostOptions& options) {
  buffer_.End(static_cast<uint32_t>(options.bulk_bytes));
  bulk_bytes_.fetch_add(options.bulk_bytes, std::memory_order_relaxed);
  last_append_ns_ = base::NowNs();
  sending_.clear();
  sending_.swap(buffer_);
  buffered_since_ns_.store(0, std::memory_order_relaxed);
  buffer_full_.store(false, std::memory_order_relaxed);
  append.unlock();
  std::array<iovec, 2> parts = {sending_.part(),
                                iovec{const_cast<void*>(options.bulk), options.bulk_bytes}};
  if (options.lent) connection_->Lend(options.bulk, options.bulk_bytes);
  const CUresult status = Write(parts.data(), 2, -1);
  if (options.lent) connection_->Lend(nullptr, 0);
  return status;
}

void Channel::Flush() {
  std::unique_lock turn(turn_mutex_);
  const std::lock_guard wire(wire_mutex_);
  turn.unlock();
  WriteBuffer(-1);
}

void Channel::WriteBuffer(int idle_timeout_ms) {
  {
    const std::lock_guard append(append_mutex_);
    if (buffer_.empty()) return;
    sending_.clear();
    sending_.swap(buffer_);
    buffered_since_ns_.store(0, std::memory_order_relaxed);
    buffer_full_.store(false, std::memory_order_relaxed);
  }
  iovec part = sending_.part();
  Write(&part, 1, idle_timeout_ms);
}

// Lets a sender that waits for a full connection read frames meanwhile, so that both ends progress.
class LeadHook final : public transport::ReadHook {
 public:
  explicit LeadHook(Channel* channel) : channel_(channel) {}
  bool OnReadable() override { return channel_->ReadWithoutBlocking(); }

 private:
  Channel* const channel_;
};

CUresult Channel::Write(iovec* parts, int count, int idle_timeout_ms) {
  LeadHook hook(this);
  commands_sent_.fetch_add(sending_.frames(), std::memory_order_relaxed);
  writes_.fetch_add(1, std::memory_order_relaxed);
  switch (transport::SendAll(*connection_, parts, count, &hook, idle_timeout_ms)) {
    case transport::SendState::kSent:
      return CUDA_SUCCESS;
    case transport::SendState::kFault:
      return CUDA_ERROR_INVALID_VALUE;
    case transport::SendState::kTimeout:
      return CUDA_SUCCESS;  // only FlushAtExit sets a limit, and an exit is not a failure
    default:
      ReadWithoutBlocking();  // the worker may have sent the reason before it ended
      Lost(LostSentence("the server closed the connection"));
      return sticky();
  }
}

void Channel::FlushAtExit(int timeout_ms) {
  leaving_ = true;
  std::unique_lock wire(wire_mutex_, std::try_to_lock);
  for (int tried_ms = 0; !wire.owns_lock() && tried_ms < timeout_ms; ++tried_ms) {
    const timespec pause{0, 1'000'000};
    nanosleep(&pause, nullptr);
    wire.try_lock();
  }
  if (wire.owns_lock() && append_mutex_.try_lock()) {
    append_mutex_.unlock();
    WriteBuffer(timeout_ms);
  }
}

CUresult Channel::Broken(std::string_view sentence) {
  Lost(sentence);
  return sticky();
}

}  // namespace rgpu::shim
