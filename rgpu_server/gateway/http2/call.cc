#include "rgpu_server/gateway/http2/call.h"

#include <algorithm>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_server/gateway/http2/carrier.h"

namespace rgpu::gateway::http2 {
namespace {

// The time that a client has to read the end of a call.
constexpr uint64_t kLastWordsNs = 60 * base::kSecond;

uint64_t After(uint64_t now, uint64_t delay) { return delay > kNever - now ? kNever : now + delay; }

}  // namespace

Call::Call(Carrier& carrier, uint64_t place, const Fields& request)
    : carrier_(carrier),
      place_(place),
      deadline_ns_(After(base::NowNs(), TimeoutNs(Value(request, "grpc-timeout")))) {}

uint64_t Call::due() const { return finished_ ? deadline_ns_ : std::min(deadline_ns_, NextDue()); }

void Call::OnTime(uint64_t now) {
  if (now < deadline_ns_) {
    if (!finished_) Look(now);
  } else if (finished_) {
    carrier_.session().Reset(id(), lib::kCancel);
    deadline_ns_ = kNever;
  } else {
    Finish({Code::kDeadlineExceeded, "the call took longer than the client waits"});
  }
}

void Call::Send() {
  if (!answered_) carrier_.session().Answer(this, AnswerFields());
  answered_ = true;
  carrier_.session().Resume(*this);
}

void Call::FinishWith(const Fields& trailers) {
  if (finished_) return;
  finished_ = true;
  deadline_ns_ = After(base::NowNs(), kLastWordsNs);
  if (!answered_ && out_.bytes() == 0) {
    Fields fields = AnswerFields();
    fields.insert(fields.end(), trailers.begin(), trailers.end());
    carrier_.session().AnswerAtOnce(id(), fields);
    return;
  }
  trailers_ = trailers;
  out_ends_ = true;
  Send();
}

void Call::Admit() {
  if (admitted_ || finished_) return;
  admitted_ = true;
  carrier_.house().calls.SetKnown(place_, true);
  carrier_.Admitted(1);
}

void Call::OnClosed(uint32_t) {
  finished_ = true;
  GiveBack();
  if (admitted_) carrier_.Admitted(-1);
  carrier_.house().calls.Leave(place_);
}

}  // namespace rgpu::gateway::http2
