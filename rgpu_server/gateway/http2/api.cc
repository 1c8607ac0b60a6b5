#include "rgpu_server/gateway/http2/api.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_server/gateway/http2/carrier.h"

namespace rgpu::gateway::http2 {
namespace {

// The time limit of a call, for the daemon's answer and for the client to read it.
constexpr uint64_t kMostNs = 60 * base::kSecond;
// The fields of a request that go to the daemon. All others belong to HTTP/2 and to proxies.
constexpr std::string_view kPassed[] = {"authorization", "grpc-timeout"};
// The trailers that go to the client.
constexpr std::string_view kPassedBack[] = {"grpc-status", "grpc-message"};

const Status kNoServer{Code::kUnavailable,
                       "the server behind this gateway does not answer; is it being restarted?"};

template <size_t kCount>
void Pass(const Fields& from, const std::string_view (&names)[kCount], Fields* to) {
  for (const std::string_view name : names) {
    if (const std::string_view value = Value(from, name); !value.empty()) {
      to->emplace_back(name, value);
    }
  }
}

}  // namespace

// The client's half

ApiCall::ApiCall(Carrier& carrier, uint64_t place, Fields request)
    : Call(carrier, place, request),
      request_(std::move(request)),
      due_ns_(base::NowNs() +
              static_cast<uint64_t>(carrier.house().patience.first) * base::kMillisecond) {}

void ApiCall::OnData(const uint8_t* data, size_t bytes) {
  if (!finished() && !any_) {
    any_ = true;
    upstream_ = carrier().BeginUpstream(request_, this);
    if (upstream_ == nullptr) Finish(kNoServer);
  }
  if (finished() || upstream_ == nullptr) {
    Taken(bytes);
  } else {
    upstream_->Say(data, bytes);
  }
}

void ApiCall::Taken(size_t bytes) { carrier().session().Consume(*this, bytes); }

void ApiCall::OnEnd() {
  if (finished()) return;
  if (!any_) {
    Finish({Code::kInvalidArgument, "the call came without a request"});
    return;
  }
  due_ns_ = kNever;
  SetDeadline(base::NowNs() + kMostNs);
  Admit();
  if (upstream_ != nullptr) upstream_->EndRequest();
}

void ApiCall::Answer(const uint8_t* data, size_t bytes) {
  out_.Add(data, bytes);
  Send();
}

void ApiCall::OnSent() {
  if (upstream_ != nullptr) upstream_->TakenAll();
}

void ApiCall::LeftAlone() {
  upstream_ = nullptr;
  Finish(kNoServer);
}

uint64_t ApiCall::NextDue() const { return due_ns_; }

void ApiCall::Look(uint64_t now) {
  if (now >= due_ns_) Finish({Code::kDeadlineExceeded, "the client sent no request in time"});
}

void ApiCall::GiveBack() {
  if (upstream_ != nullptr) std::exchange(upstream_, nullptr)->GiveUp();
}

// The daemon's half

void UpstreamCall::Say(const uint8_t* data, size_t bytes) {
  out_.Add(data, bytes);
  unsent_ += bytes;
  session_->Resume(*this);
}

void UpstreamCall::EndRequest() {
  out_ends_ = true;
  session_->Resume(*this);
}

void UpstreamCall::OnSent() {
  if (call_ != nullptr) call_->Taken(std::exchange(unsent_, 0));
}

void UpstreamCall::OnFields(const Fields& fields, bool last) {
  if (call_ == nullptr) return;
  if (last) {
    Fields trailers;
    Pass(fields, kPassedBack, &trailers);
    if (!trailers.empty()) call_->FinishWith(trailers);
  } else if (Value(fields, ":status") != "200") {
    call_->Finish(kNoServer);
  }
}

void UpstreamCall::OnData(const uint8_t* data, size_t bytes) {
  if (call_ == nullptr || call_->finished()) {
    session_->Consume(*this, bytes);
    return;
  }
  untaken_ += bytes;
  call_->Answer(data, bytes);
}

void UpstreamCall::TakenAll() { session_->Consume(*this, std::exchange(untaken_, 0)); }

void UpstreamCall::GiveUp() {
  call_ = nullptr;
  session_->Reset(id(), lib::kCancel);
}

void UpstreamCall::OnClosed(uint32_t) {
  if (call_ != nullptr) std::exchange(call_, nullptr)->LeftAlone();
}

// The connection

std::unique_ptr<Upstream> Upstream::Open(House& house, const wire::Preface& preface) {
  base::UniqueFd inner = house.door.Enter(preface);
  if (!inner.valid()) return nullptr;
  auto connection = transport::Adopt(inner.release());
  if (connection == nullptr) return nullptr;
  return std::unique_ptr<Upstream>(new Upstream(house.api, std::move(connection)));
}

Upstream::Upstream(const lib::Api& api, std::unique_ptr<transport::Connection> connection)
    : connection_(std::move(connection)), session_(api, Session::Role::kClient, this) {}

UpstreamCall* Upstream::Begin(const Fields& request, ApiCall* call) {
  Fields fields{
      {":method", "POST"},    {":scheme", "http"}, {":path", std::string(Value(request, ":path"))},
      {":authority", "rgpu"}, {"te", "trailers"},  {"content-type", "application/grpc"}};
  Pass(request, kPassed, &fields);
  auto made = std::make_unique<UpstreamCall>(&session_, call);
  UpstreamCall* raw = made.get();
  return session_.Request(fields, std::move(made)) ? raw : nullptr;
}

short Upstream::events() const {
  return static_cast<short>(POLLIN | (session_.blocked() ? POLLOUT : 0));
}

bool Upstream::Receive(uint8_t* buffer, size_t bytes) {
  const transport::IoResult got = connection_->TryRecv(buffer, bytes);
  if (got.state == transport::IoState::kWouldBlock) return true;
  return got.ok() && session_.Receive(buffer, got.bytes) && !session_.over();
}

}  // namespace rgpu::gateway::http2
