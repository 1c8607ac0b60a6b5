#include "rgpu_server/gateway/http2/carrier.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/base/log.h"
#include "rgpu_common/native/base/network.h"
#include "rgpu_server/gateway/http2/tunnel.h"
#include "rgpu_server/gateway/peer.h"

namespace rgpu::gateway::http2 {
namespace {

using transport::IoResult;
using transport::IoState;

constexpr size_t kReadBytes = 256U << 10;
constexpr std::string_view kOpen = "/rgpu.v1.TunnelService/Open";
constexpr std::string_view kTunnels = "/rgpu.v1.TunnelService/";
constexpr std::string_view kApi = "/rgpu.v1.";
// The cost of frames, in frames without data.
constexpr double kSettingsCost = 50;
constexpr double kResetCost = 2;
constexpr double kHeaderBytesAFrame = 1024;
constexpr double kPassedOverBytesAFrame = 4096;
constexpr size_t kMaxHeaderFrame = 32U << 10;
constexpr int64_t kFrameHeadBytes = 9;
// Limits for the time in which a client reads why its connection ends.
constexpr int kLastWordsMs = 1000;
constexpr size_t kLastWordsBytes = 4U << 20;
// Positions in `waits_`.
constexpr size_t kClientAt = 0;
constexpr size_t kWakerAt = 1;
constexpr size_t kUpstreamAt = 2;
constexpr size_t kCallsAt = 3;

uint64_t Ns(int milliseconds) { return static_cast<uint64_t>(milliseconds) * base::kMillisecond; }

}  // namespace

Waker::Waker() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void Waker::Wake() {
  const uint64_t one = 1;
  // It fails only if the counter is at its limit: then the descriptor is readable already.
  if (write(event_.get(), &one, sizeof one) < 0) return;
}

void Waker::SendAway(int32_t stream) {
  {
    const std::lock_guard lock(mutex_);
    sent_away_.push_back(stream);
  }
  Wake();
}

std::vector<int32_t> Waker::Take() {
  uint64_t count = 0;
  if (read(event_.get(), &count, sizeof count) < 0) return {};
  const std::lock_guard lock(mutex_);
  return std::exchange(sent_away_, {});
}

Carrier::Carrier(House& house, transport::Connection& client, const wire::Preface& preface,
                 std::shared_ptr<Waker> waker, const std::function<void(bool)>& known)
    : house_(house),
      client_(client),
      preface_(preface),
      waker_(std::move(waker)),
      known_(known),
      network_(base::NetworkOf(HostOf(preface.peer))),
      sees_less_(std::string_view(client.kind()) == "tls"),
      buffer_(std::make_unique_for_overwrite<uint8_t[]>(kReadBytes)),
      now_ns_(base::NowNs()),
      allowance_(now_ns_),
      session_(house.api, Session::Role::kServer, this),
      began_ns_(now_ns_),
      heard_ns_(now_ns_),
      idle_ns_(now_ns_) {}

Carrier::~Carrier() {
  session_.Close();
  upstream_.reset();
}

void Carrier::Run() {
  while (Turn()) {
  }
  if (session_.failed()) SayLastWords();
}

bool Carrier::Turn() {
  const uint64_t now = now_ns_ = base::NowNs();
  if (house_.leaving) Leave();
  if (!session_.failed() && !CheckLife(now)) return false;
  if (!Flush() || session_.failed() || session_.over()) return false;
  const bool done = leaving_ && session_.streams() == 0 && !session_.blocked();
  return !done && Listen(now);
}

// Sends to both sides: bytes from one often cause bytes for the other.
bool Carrier::Flush() {
  if (upstream_ != nullptr && !upstream_->Send()) upstream_.reset();
  return session_.Send(&client_);
}

bool Carrier::Listen(uint64_t now) {
  waits_.assign(kCallsAt, {-1, 0, 0});
  waiting_.clear();
  const int output = session_.blocked() ? POLLOUT : 0;
  waits_[kClientAt] = {client_.descriptor(), static_cast<short>(POLLIN | output), 0};
  waits_[kWakerAt] = {waker_->fd(), POLLIN, 0};
  if (upstream_ != nullptr) waits_[kUpstreamAt] = {upstream_->fd(), upstream_->events(), 0};
  session_.ForEach([this](const Stream& stream) {
    const Call::Wait wait = static_cast<const Call&>(stream).waits();
    if (wait.fd < 0) return;
    waits_.push_back({wait.fd, wait.events, 0});
    waiting_.push_back(stream.id());
  });
  const uint64_t due = Due();
  int timeout_ms = -1;
  if (more_ || due <= now) {
    timeout_ms = 0;
  } else if (due != kNever) {
    timeout_ms = static_cast<int>(std::min<uint64_t>((due - now) / base::kMillisecond + 1, 60000));
  }
  if (poll(waits_.data(), waits_.size(), timeout_ms) < 0) return errno == EINTR;
  now_ns_ = base::NowNs();
  if (waits_[kWakerAt].revents != 0) SendAway();
  HearCalls();
  HearUpstream(waits_[kUpstreamAt]);
  const bool came = more_ || (waits_[kClientAt].revents & ~POLLOUT) != 0;
  return !came || Receive();
}

bool Carrier::Receive() {
  const IoResult got = client_.TryRecv(buffer_.get(), kReadBytes);
  // TLS may hold more input until TryRecv returns kWouldBlock.
  more_ = got.ok() && sees_less_;
  if (got.state == IoState::kWouldBlock) return true;
  if (!got.ok()) return false;
  heard_ns_ = now_ns_;
  silent_bytes_ += static_cast<int64_t>(got.bytes);
  const bool well = session_.Receive(buffer_.get(), got.bytes) && ChargeForSilence();
  if (!well) {
    base::Log(base::Level::kInfo, "%s: %s", preface_.peer.c_str(), session_.why().c_str());
    if (!session_.begun()) house_.figures.Refused(Reason::kHandshake);
  }
  if (session_.streams() > 0) idle_ns_ = now_ns_;
  return true;
}

// nghttp2 skips frames of closed streams and of extensions without a callback. Returns false if
// there are too many of them.
bool Carrier::ChargeForSilence() {
  if (silent_bytes_ <= 0) return true;
  const double cost = static_cast<double>(silent_bytes_) / kPassedOverBytesAFrame;
  silent_bytes_ = 0;
  if (allowance_.Spend(cost, now_ns_)) return true;
  session_.Fail(lib::kEnhanceYourCalm, "too many frames of closed streams or unknown types");
  return false;
}

void Carrier::HearCalls() {
  for (size_t i = 0; i < waiting_.size(); ++i) {
    const short events = waits_[kCallsAt + i].revents;
    if (events == 0) continue;
    if (Stream* stream = session_.Find(waiting_[i]); stream != nullptr) {
      static_cast<Call&>(*stream).OnReady(events);
    }
  }
}

void Carrier::HearUpstream(const pollfd& ready) {
  if (upstream_ == nullptr || (ready.revents & ~POLLOUT) == 0) return;
  if (!upstream_->Receive(buffer_.get(), kReadBytes)) upstream_.reset();
}

// Time

// Returns false if the client does not answer any more.
bool Carrier::CheckLife(uint64_t now) {
  const Patience& patience = house_.patience;
  session_.ForEach([now](Stream& stream) {
    auto& call = static_cast<Call&>(stream);
    if (call.due() <= now) call.OnTime(now);
  });
  if (!session_.begun()) {
    if (now - began_ns_ < Ns(patience.handshake)) return true;
    house_.figures.Refused(Reason::kLate);
    return false;
  }
  if (session_.streams() > 0) {
    idle_ns_ = now;
  } else if (now - idle_ns_ >= Ns(patience.idle)) {
    Leave();
  }
  if (asked_ns_ > heard_ns_) return now - asked_ns_ < Ns(patience.ping);
  if (now - heard_ns_ >= Ns(patience.ping)) {
    asked_ns_ = now;
    session_.Ping();
  }
  return true;
}

uint64_t Carrier::Due() const {
  const Patience& patience = house_.patience;
  uint64_t due = kNever;
  session_.ForEach([&due](const Stream& stream) {
    due = std::min(due, static_cast<const Call&>(stream).due());
  });
  if (!session_.begun()) return std::min(due, began_ns_ + Ns(patience.handshake));
  if (session_.streams() == 0) due = std::min(due, idle_ns_ + Ns(patience.idle));
  return std::min(due, std::max(asked_ns_, heard_ns_) + Ns(patience.ping));
}

void Carrier::Leave() {
  if (leaving_) return;
  leaving_ = true;
  session_.Leave();
}

// Closing a socket with unread bytes resets it, and the GOAWAY would be lost. So this reads on.
void Carrier::SayLastWords() {
  client_.EndSending();
  const base::Deadline deadline(kLastWordsMs);
  for (size_t left = kLastWordsBytes; left > 0;) {
    const IoResult got = client_.TryRecv(buffer_.get(), std::min(kReadBytes, left));
    if (got.ok()) {
      left -= got.bytes;
    } else if (got.state != IoState::kWouldBlock ||
               client_.Wait(transport::kReadable, deadline.left_ms()) == 0) {
      return;
    }
  }
}

// Calls

void Carrier::Admitted(int count) {
  const bool before = admitted_ > 0;
  admitted_ += count;
  if (before != (admitted_ > 0)) known_(admitted_ > 0);
}

void Carrier::SendAway() {
  for (const int32_t id : waker_->Take()) {
    Stream* stream = session_.Find(id);
    if (stream == nullptr) continue;
    static_cast<Call&>(*stream).Finish(
        {Code::kResourceExhausted,
         "the call made room for another one, because the server had not answered it yet"});
  }
}

UpstreamCall* Carrier::BeginUpstream(const Fields& request, ApiCall* call) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (upstream_ == nullptr) upstream_ = Upstream::Open(house_, preface_);
    if (upstream_ == nullptr) break;
    if (UpstreamCall* begun = upstream_->Begin(request, call); begun != nullptr) return begun;
    upstream_.reset();
  }
  house_.figures.Refused(Reason::kNoServer);
  return nullptr;
}

std::unique_ptr<Stream> Carrier::OnRequest(int32_t id, const Fields& fields) {
  if (leaving_) {
    session_.Reset(id, lib::kRefusedStream);
    return nullptr;
  }
  if (const Fields answer = NoGrpc(fields); !answer.empty()) {
    session_.AnswerAtOnce(id, answer);
    return nullptr;
  }
  const std::string_view path = Value(fields, ":path");
  const bool tunnel = path == kOpen;
  if (!tunnel && (!path.starts_with(kApi) || path.starts_with(kTunnels))) {
    session_.AnswerAtOnce(id, OnlyTrailers({Code::kUnimplemented, "Method not found!"}));
    return nullptr;
  }
  unsigned int sent_away = 0;
  const uint64_t place =
      house_.calls.Enter([waker = waker_, id] { waker->SendAway(id); }, network_, &sent_away);
  for (; sent_away > 0; --sent_away) house_.figures.Refused(Reason::kTooMany);
  if (place == 0) {
    house_.figures.Refused(Reason::kTooMany);
    const Status full{Code::kResourceExhausted,
                      "the gateway has no room for another call: try again later"};
    session_.AnswerAtOnce(id, OnlyTrailers(full));
    return nullptr;
  }
  house_.calls.Introduce(place);
  if (tunnel) return std::make_unique<Tunnel>(*this, place, fields);
  return std::make_unique<ApiCall>(*this, place, fields);
}

bool Carrier::OnFrame(const lib::FrameHead& head, bool known_stream) {
  silent_bytes_ -= kFrameHeadBytes + static_cast<int64_t>(head.length);
  switch (head.type) {
    case lib::kData:
      if (!known_stream || (head.length == 0 && (head.flags & lib::kFlagEndStream) == 0)) break;
      allowance_.Earn(head.length);
      return true;
    case lib::kHeaders: {
      const double cost = 1 + static_cast<double>(head.length) / kHeaderBytesAFrame;
      return head.length <= kMaxHeaderFrame && allowance_.Spend(cost, now_ns_);
    }
    case lib::kSettings:
      if ((head.flags & lib::kFlagAck) != 0) break;
      return allowance_.Spend(kSettingsCost, now_ns_);
    case lib::kResetStream:
      return allowance_.Spend(kResetCost, now_ns_);
    default:
      break;
  }
  return allowance_.Spend(1, now_ns_);
}

}  // namespace rgpu::gateway::http2
