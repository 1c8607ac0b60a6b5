#include "rgpu_server/executor/directs.h"

#include <algorithm>
#include <chrono>

#include "rgpu_server/executor/executor.h"

namespace rgpu::exec {

namespace {

// How often a waiting call checks whether its stream can still reach the copy.
constexpr std::chrono::microseconds kLook{50'000};
// Up to this time a call waits without giving up the decoder's role.
constexpr std::chrono::microseconds kShort{200};

}  // namespace

std::shared_ptr<Direct> Directs::Add(uint64_t address, uint64_t bytes, uint64_t ns, bool reached) {
  auto direct = std::make_shared<Direct>();
  direct->executor = &executor_;
  direct->address = address;
  direct->bytes = bytes;
  direct->ns = ns;
  direct->reached = reached;
  const std::lock_guard lock(mutex_);
  direct->ticket = ++last_ticket_;
  directs_[direct->ticket] = direct;
  return direct;
}

void Directs::Hold(Direct& direct) {
  executor_.gate().AwaitInStream(direct.ns);
  const Gate::ClientWait waits(executor_.gate(), direct.wait_place);
  std::unique_lock lock(mutex_);
  direct.reached = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return direct.done; });
  directs_.erase(direct.ticket);
  changed_.notify_all();
}

// Waits for a while. True: no copy touches the range.
bool Directs::OverAWhile(uint64_t address, uint64_t bytes) {
  const auto over = [&] {
    return std::ranges::none_of(directs_, [&](const auto& entry) {
      const Direct& direct = *entry.second;
      return direct.address < address + bytes && address < direct.address + direct.bytes;
    });
  };
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kLook, over);
}

CUresult Directs::AwaitBegun(uint64_t address, uint64_t bytes, const Context& context) {
  while (!executor_.Unlocked([&] { return OverAWhile(address, bytes); })) {
    if (executor_.sticky() != CUDA_SUCCESS) return executor_.sticky();
    if (context.dead) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  return CUDA_SUCCESS;
}

bool Directs::WaitAWhile(Direct& direct, bool first) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, first ? kShort : kLook, [&] { return direct.reached; });
}

CUresult Directs::AwaitStream(const std::shared_ptr<Direct>& direct, const Context& context) {
  for (bool first = true; !executor_.Unlocked([&] { return WaitAWhile(*direct, first); });
       first = false) {
    if (first) executor_.role().Yield();
    // A stream whose device failed or whose context is gone never reaches the copy.
    CUresult gone = executor_.sticky();
    if (gone == CUDA_SUCCESS && context.dead) gone = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (gone == CUDA_SUCCESS) continue;
    const std::lock_guard lock(mutex_);
    direct->done = true;
    directs_.erase(direct->ticket);
    changed_.notify_all();
    return gone;
  }
  return CUDA_SUCCESS;
}

bool Directs::Done(uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  const auto found = directs_.find(ticket);
  if (found == directs_.end() || !found->second->reached || found->second->done) return false;
  found->second->done = true;
  changed_.notify_all();
  return true;
}

}  // namespace rgpu::exec
