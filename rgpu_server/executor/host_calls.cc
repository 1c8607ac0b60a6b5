#include "rgpu_server/executor/host_calls.h"

#include "gen/notices.gen.h"
#include "rgpu_common/native/transport/frame_io.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/notice.h"

namespace rgpu::exec {

HostCall::~HostCall() { executor.host_calls().Remove(*this); }

void HostCalls::Add(HostCall& call) {
  const std::lock_guard lock(mutex_);
  call.id = ++last_id_;
  calls_[call.id] = &call;
}

void HostCalls::Remove(const HostCall& call) {
  const std::lock_guard lock(mutex_);
  calls_.erase(call.id);
}

void HostCalls::Run(HostCall& call) {
  const std::shared_ptr<HostCall> kept = call.shared_from_this();
  const Gate::ClientWait waits(executor_.gate(), call.wait_place, call.last);
  executor_.AwaitInStream(&call.frontier);
  transport::FrameBuffer frame;
  const auto notice = call.node ? wire::Notice::kGraphCallback : wire::Notice::kCallback;
  wire::Writer writer = frame.Begin(NoticeAbout(call.command, notice, executor_.deliveries_sent()));
  if (call.node) {
    Put(writer, wire::GraphCallback{call.id, *call.node});
  } else {
    Put(writer, wire::Callback{call.id});
  }
  frame.End();
  {
    const std::lock_guard lock(mutex_);
    call.asked = true;
  }
  executor_.outbox().Post(frame);
  std::unique_lock lock(mutex_);
  // A client may take as long as it likes, as on a GPU of its own. If the session ends first, this
  // process ends, and the wait with it.
  call.answered.wait(lock, [&] { return call.done; });
}

bool HostCalls::Done(uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = calls_.find(id);
  if (found == calls_.end() || !found->second->asked || found->second->done) return false;
  found->second->done = true;
  // With the mutex, because the call may be gone once it is unlocked.
  found->second->answered.notify_one();
  return true;
}

}  // namespace rgpu::exec
