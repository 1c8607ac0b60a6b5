#include "rgpu_client/shim/control_lane.h"

#include <time.h>

#include "gen/handshake.gen.h"
#include "gen/notices.gen.h"
#include "rgpu_client/shim/say.h"
#include "rgpu_client/shim/service_thread.h"
#include "rgpu_client/shim/sessions.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace rgpu::shim {
namespace {

constexpr int kSendTimeoutMs = 30000;
// The server answers ATTACH at once. If the worker is ending, it waits for that, up to 4 seconds
// (_END_SECONDS in desk.py). No program waits for the answer unless its session has ended.
constexpr int kAnswerMs = 5000;
// How long the first message waits for the answer to ATTACH, or for a server that starts again.
constexpr int kAttachMs = 10000;
constexpr int kFirstPauseMs = 20;
constexpr int kLongestPauseMs = 500;
constexpr uint64_t kRowsPerSend = 512;

wire::FrameHeader Header(wire::Control message) {
  wire::FrameHeader header;
  header.kind = wire::Kind::kControl;
  header.opcode = static_cast<uint16_t>(message);
  return header;
}

}  // namespace

bool ControlLane::Attach(const std::string& uri, const wire::Welcome& welcome) {
  uri_ = uri;
  attach_ = {welcome.session, welcome.secret};
  if (!Connect()) {
    answer_ = Answer::kRefused;
    return false;
  }
  if (const uint64_t grace_ms = wire::Granted(welcome.grants, wire::WishKey::kResumable);
      grace_ms != 0) {
    transport::LaneOptions options;
    options.grace_ms = static_cast<int>(std::min<uint64_t>(grace_ms, INT32_MAX));
    options.discard = true;  // no thread reads this lane: the worker sends only ATTACHED on it
    auto lane = std::make_unique<transport::Lane>(std::move(connection_), options);
    lane->StartRecords();
    lane_ = lane.get();
    connection_ = std::move(lane);
  }
  return true;
}

// Connects and sends ATTACH.
bool ControlLane::Connect() {
  transport::ConnectError why;
  connection_ = transport::Connect(uri_, {}, &why);
  if (connection_ == nullptr) return false;
  return transport::SendHandshake(*connection_, wire::Handshake::kAttach, attach_, kSendTimeoutMs);
}

// Reads the answer to ATTACH. `*sentence` is that of REFUSED.
ControlLane::Answer ControlLane::Hear(int timeout_ms, std::string* sentence) {
  transport::FrameReader reader(connection_.get(), wire::kMaxHeadBytes);
  wire::FrameHeader header;
  wire::ByteView head;
  switch (reader.Next(&header, &head, timeout_ms)) {
    case transport::ReadState::kFrame:
      break;
    case transport::ReadState::kTimeout:
      return Answer::kNone;
    default:
      return Answer::kCut;
  }
  if (header.kind != wire::Kind::kHandshake) return Answer::kCut;
  if (header.opcode == static_cast<uint16_t>(wire::Handshake::kAttached)) return Answer::kAttached;
  wire::Reader fields(head.data, head.size);
  wire::Refused refused;
  if (header.opcode != static_cast<uint16_t>(wire::Handshake::kRefused) || !Get(fields, &refused)) {
    return Answer::kCut;
  }
  *sentence = refused.sentence;
  return Answer::kRefused;
}

// Makes sure, before the first message, that the worker has this lane. A server that ends takes an
// ATTACH with it that it has not passed on, and the worker would wait for messages that never come.
// So ATTACH is sent again, to a server that may have started again. A lane that survives cuts needs
// none of this: RESUME begins it. With the lock. False: the worker cannot be given this lane;
// `*why` says why, the first time.
bool ControlLane::IsAttached(std::string* why) {
  if (lane_ != nullptr || answer_ == Answer::kAttached) return true;
  const base::Deadline deadline(kAttachMs);
  for (int pause_ms = kFirstPauseMs; answer_ != Answer::kRefused;
       pause_ms = std::min(2 * pause_ms, kLongestPauseMs)) {
    answer_ = connection_ == nullptr ? Answer::kCut : Hear(deadline.left_ms(), why);
    if (answer_ == Answer::kAttached) return true;
    if (answer_ == Answer::kRefused) break;
    if (deadline.passed()) {
      *why = kNotAccepted;
      answer_ = Answer::kRefused;
    } else {
      const timespec pause{0, pause_ms * 1'000'000L};
      nanosleep(&pause, nullptr);
      if (!Connect()) connection_ = nullptr;
    }
  }
  return false;
}

std::string ControlLane::WhyRefused() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  std::string sentence;
  if (!lock.owns_lock() || connection_ == nullptr || lane_ != nullptr) return sentence;
  if (answer_ != Answer::kNone) return sentence;
  answer_ = Hear(kAnswerMs, &sentence);
  // A worker that dies takes an ATTACH with it that it has not answered. The server knows why.
  if (answer_ == Answer::kCut && Connect()) answer_ = Hear(kAnswerMs, &sentence);
  return sentence;
}

// Calls `step` with the lock, once the worker has this lane. Returns what it returns.
template <typename Step>
bool ControlLane::WhenAttached(const Step& step) {
  std::string why;
  {
    const std::lock_guard lock(mutex_);
    if (IsAttached(&why)) return connection_ != nullptr && step();
  }
  if (!why.empty() && lost_) lost_(why);
  return false;
}

bool ControlLane::SendPulled(const wire::Pull& pull, const HostRegion& source, uint64_t start) {
  return WhenAttached([&] {
    uint64_t done = 0;
    do {
      const uint64_t count = std::min<uint64_t>(pull.bytes - done, wire::kMaxBulkBytes);
      wire::FrameHeader header = Header(wire::Control::kPullData);
      header.flags = static_cast<uint8_t>(pull.bytes - done > count ? wire::kMore : 0);
      transport::FrameBuffer frame;
      wire::Writer head = frame.Begin(header);
      Put(head, wire::PullData{pull.pull, pull.offset + done});
      frame.End(static_cast<uint32_t>(count));
      if (!Send(frame, &source, start + done, count)) return false;
      done += count;
    } while (done < pull.bytes);
    return true;
  });
}

bool ControlLane::SendCopyDone(uint64_t ticket) {
  return SendMessage(wire::Control::kCopyDone, wire::CopyDone{ticket});
}

void ControlLane::SendCreditReturn(uint64_t returned) {
  SendMessage(wire::Control::kCreditReturn, wire::CreditReturn{returned});
}

void ControlLane::SendCallbackDone(uint64_t callback) {
  const wire::CallbackDone done{callback};
  if (LiveSessions().size() < 2) {
    SendMessage(wire::Control::kCallbackDone, done);
    return;
  }
  transport::FrameBuffer frame;
  wire::Writer head = frame.Begin(Header(wire::Control::kCallbackDone));
  Put(head, done);
  frame.End();
  if (!SendNow(frame)) Leave(std::move(frame));
}

// Sends the frame without waiting. False: another thread sends, or something else comes first.
bool ControlLane::SendNow(transport::FrameBuffer& frame) {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || !rest_.empty()) return false;
  if (lane_ == nullptr && answer_ != Answer::kAttached) return false;
  if (connection_ == nullptr) return true;
  const iovec part = frame.part();
  const transport::IoResult result = connection_->TrySend(&part, 1);
  if (result.lost()) return true;
  rest_.assign(frame.data() + (result.ok() ? result.bytes : 0), frame.data() + frame.size());
  const bool all = rest_.empty();
  lock.unlock();
  if (!all) Leave({});
  return true;
}

// Leaves the frame to the lane's own thread. An empty frame only lets it send the rest.
void ControlLane::Leave(transport::FrameBuffer frame) {
  const std::lock_guard lock(left_mutex_);
  left_.push_back(std::move(frame));
  if (!sends_left_) sends_left_ = StartServiceThread("rgpu-control", &SendLeft, this);
  if (!sends_left_) {
    Say("the system gives no thread for a device's streams, so those that wait for another device "
        "stand still");
  }
  left_something_.notify_one();
}

void ControlLane::SendLeft(void* lane) {
  auto* self = static_cast<ControlLane*>(lane);
  for (;;) {
    std::unique_lock left(self->left_mutex_);
    self->left_something_.wait(left, [&] { return !self->left_.empty(); });
    transport::FrameBuffer frame = std::move(self->left_.front());
    self->left_.pop_front();
    left.unlock();
    self->WhenAttached([&] { return self->Send(frame, nullptr, 0, 0); });
  }
}

template <typename Message>
bool ControlLane::SendMessage(wire::Control kind, const Message& message) {
  transport::FrameBuffer frame;
  wire::Writer head = frame.Begin(Header(kind));
  Put(head, message);
  frame.End();
  return WhenAttached([&] { return Send(frame, nullptr, 0, 0); });
}

// What SendNow has not sent of its frame. A connection may have encrypted it, so it comes first.
bool ControlLane::SendRest() {
  if (rest_.empty()) return true;
  iovec part{rest_.data(), rest_.size()};
  const transport::SendState state =
      transport::SendAll(*connection_, &part, 1, nullptr, kSendTimeoutMs);
  rest_.clear();
  return state == transport::SendState::kSent;
}

// Sends the frame, and after it the bytes of `bulk` straight from the program's memory.
bool ControlLane::Send(transport::FrameBuffer& frame, const HostRegion* bulk, uint64_t offset,
                       uint64_t bytes) {
  if (!SendRest()) return false;
  if (frame.empty()) return true;
  std::vector<iovec> parts = {frame.part()};
  if (bulk != nullptr) {
    const std::vector<iovec> pieces = Pieces(*bulk, offset, bytes);
    parts.insert(parts.end(), pieces.begin(), pieces.end());
  }
  for (size_t first = 0; first < parts.size(); first += kRowsPerSend) {
    const auto count = static_cast<int>(std::min<size_t>(kRowsPerSend, parts.size() - first));
    const transport::SendState state =
        transport::SendAll(*connection_, parts.data() + first, count, nullptr, kSendTimeoutMs);
    // Bytes that cannot be read arrive as zeros: the program freed memory before the copy had
    // ended.
    if (state != transport::SendState::kSent && state != transport::SendState::kFault) return false;
  }
  return true;
}

void ControlLane::Bye(int timeout_ms) {
  std::unique_lock lock(mutex_, std::try_to_lock);
  for (int tried_ms = 0; !lock.owns_lock() && tried_ms < timeout_ms; ++tried_ms) {
    const timespec pause{0, 1'000'000};
    nanosleep(&pause, nullptr);
    lock.try_lock();
  }
  if (!lock.owns_lock() || connection_ == nullptr || !rest_.empty()) return;
  transport::FrameBuffer frame;
  frame.Begin(Header(wire::Control::kBye));
  frame.End();
  iovec part = frame.part();
  transport::SendAll(*connection_, &part, 1, nullptr, timeout_ms);
}

void ControlLane::Abandon() {
  if (connection_ != nullptr) connection_->Abandon();
}

}  // namespace rgpu::shim
