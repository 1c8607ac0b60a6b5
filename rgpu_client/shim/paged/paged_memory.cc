#include "rgpu_client/shim/paged/paged_memory.h"

#include <cstring>

#include "gen/errors.gen.h"
#include "rgpu_client/shim/calls/here.h"
#include "rgpu_client/shim/paged/active.h"
#include "rgpu_client/shim/paged/difference.h"
#include "rgpu_client/shim/paged/fault_handler.h"
#include "rgpu_client/shim/paged/traffic.h"
#include "rgpu_client/shim/runtime.h"
#include "rgpu_client/shim/say.h"
#include "rgpu_common/native/base/ranges.h"

namespace rgpu::shim {

CUresult PagedMemory::Add(const Here& here, uint64_t base, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  auto views = TwoViews::Map(base, bytes);
  if (views == nullptr || !FaultHandler::Watch(base, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  Tracked tracked{base, bytes, here.context_id(), PageStates(bytes / kPageBytes), std::move(views),
                  {}};
  tracked_.emplace(base, std::move(tracked));
  SetPagedBit(session_.number(), kTrackedRanges, true);
  return CUDA_SUCCESS;
}

bool PagedMemory::Remove(uint64_t base) {
  const std::lock_guard lock(mutex_);
  const bool known = tracked_.erase(base) != 0;
  if (tracked_.empty()) {
    SetPagedBit(session_.number(), kTrackedRanges | kUnsettledPages, false);
  }
  return known;
}

CUresult PagedMemory::AddMirror(const Here& here, uint64_t host, uint64_t device, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  return mirrors_.Add(*TrafficContext(here.context), host, device, bytes);
}

void PagedMemory::RemoveMirror(uint64_t host) {
  const std::lock_guard lock(mutex_);
  mirrors_.Remove(host);
}

PagedMemory::Tracked* PagedMemory::Find(uint64_t address) {
  const auto it = base::RangeAt(tracked_, address, [](const Tracked& t) { return t.bytes; });
  return it == tracked_.end() ? nullptr : &it->second;
}

// The context in whose page stream the next bytes travel: `wanted`, because a command of that
// context follows and waits for them, or else the one that was used last. If it is another one,
// what travels in the old one arrives first. Null: there is no context left.
Context* PagedMemory::TrafficContext(Context* wanted) {
  Context* const last = used_ == 0 ? nullptr : session_.handles().Find<Context>(used_);
  Context* chosen = wanted != nullptr ? wanted : last;
  for (auto it = tracked_.begin(); chosen == nullptr && it != tracked_.end(); ++it) {
    chosen = session_.handles().Find<Context>(it->second.context);
  }
  if (chosen == nullptr) chosen = session_.handles().Find<Context>(mirrors_.context());
  if (last != nullptr && chosen != last) traffic::Settle(session_, *last);
  used_ = chosen == nullptr ? 0 : static_cast<uint32_t>(chosen->id);
  return chosen;
}

// A page that was written while work was outstanding may also have bytes that the device has
// written since. So only the bytes that the program has changed are sent.
void PagedMemory::PushRun(Tracked& tracked, Context& context, const PageRun& run) {
  const auto send = [&](uint64_t offset, uint64_t bytes) {
    traffic::Push(session_, context, tracked.base + offset, tracked.views->at(offset), bytes);
  };
  uint64_t first = run.first;
  for (uint64_t page = run.first; page < run.end(); ++page) {
    const auto before = tracked.before.find(page);
    if (before == tracked.before.end()) continue;
    if (page > first) send(first * kPageBytes, (page - first) * kPageBytes);
    first = page + 1;
    const uint64_t offset = page * kPageBytes;
    for (const ByteRun& changed :
         Difference(tracked.views->at(offset), before->second->data(), kPageBytes)) {
      send(offset + changed.offset, changed.bytes);
    }
    tracked.before.erase(before);
  }
  if (run.end() > first) send(first * kPageBytes, (run.end() - first) * kPageBytes);
}

// Sends what the program has written. Its next write to these pages is noticed again.
void PagedMemory::Push(Tracked& tracked, Context& context) {
  if (!tracked.states.any_dirty()) return;
  for (const PageRun& run : tracked.states.Dirty()) {
    tracked.views->Allow(run, PageAccess::kRead);
    PushRun(tracked, context, run);
    tracked.states.SetClean(run);
  }
}

// Sends what the program has written, and takes all pages away from it.
void PagedMemory::TakeAway(Tracked& tracked, Context& context) {
  if (!tracked.states.any_valid()) return;
  tracked.views->Allow(tracked.states.Valid(), PageAccess::kNone);
  if (tracked.states.any_dirty()) {
    for (const PageRun& run : tracked.states.Dirty()) PushRun(tracked, context, run);
  }
  tracked.before.clear();
  tracked.states.Drop();
}

void PagedMemory::BeforeWork(const Here& here) {
  const std::lock_guard lock(mutex_);
  FaultHandler::Renew();
  log_.Note(here);
  Context& context = *TrafficContext(here.context);
  for (auto& [base, tracked] : tracked_) TakeAway(tracked, context);
  mirrors_.Push(context, true);
}

void PagedMemory::BeforeUse(const Here& here, uint64_t address, uint64_t bytes, bool written) {
  const std::lock_guard lock(mutex_);
  Tracked* const tracked = Find(address);
  const bool mirrored = mirrors_.Meets(address, bytes);
  if (tracked == nullptr && !mirrored) return;
  if (written) log_.Note(here);
  Context& context = *TrafficContext(here.context);
  if (mirrored) mirrors_.Push(context, written);
  if (tracked == nullptr) return;
  if (written) {
    TakeAway(*tracked, context);
  } else {
    Push(*tracked, context);
  }
}

void PagedMemory::BeforeValueWait(const Here& here, uint64_t address, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!mirrors_.Meets(address, bytes)) return;
  log_.Note(here);
  awaited_ = true;
}

void PagedMemory::BeforeCall() {
  if (!awaited_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  Context* const context = TrafficContext(nullptr);
  if (context == nullptr) return;
  const bool outstanding = log_.Outstanding(session_);
  awaited_ = outstanding;
  if (outstanding) mirrors_.Push(*context, false);
}

void PagedMemory::DropUnsettled() {
  if (!PagedHas(session_.number(), kUnsettledPages)) return;
  SetPagedBit(session_.number(), kUnsettledPages, false);
  Context* const context = TrafficContext(nullptr);
  if (context == nullptr) return;
  for (auto& [base, tracked] : tracked_) {
    if (tracked.states.any_unsettled()) TakeAway(tracked, *context);
  }
}

void PagedMemory::AfterCall(bool completed) {
  const std::lock_guard lock(mutex_);
  DropUnsettled();
  if (!completed || !mirrors_.AnyUsed()) return;
  if (Context* const context = TrafficContext(nullptr)) {
    mirrors_.Pull(*context, !log_.Outstanding(session_));
  }
}

void PagedMemory::BeforeHostFunction() {
  const std::lock_guard lock(mutex_);
  DropUnsettled();
  if (!mirrors_.AnyUsed()) return;
  if (Context* const context = TrafficContext(nullptr)) mirrors_.Pull(*context, false);
}

// The stream goes on when the worker learns that the function has ended, so the bytes must be in
// the device's memory by then.
void PagedMemory::AfterHostFunction() {
  const std::lock_guard lock(mutex_);
  DropUnsettled();
  Context* const context = TrafficContext(nullptr);
  if (context == nullptr) return;
  for (auto& [base, tracked] : tracked_) Push(tracked, *context);
  mirrors_.Push(*context, false);
  traffic::Settle(session_, *context);
}

bool PagedMemory::Serve(uint64_t address, TouchKind kind) {
  const std::lock_guard lock(mutex_);
  Tracked* const tracked = Find(address);
  if (tracked == nullptr) return false;
  const uint64_t page = (address - tracked->base) / kPageBytes;
  const PageState state = tracked->states.state(page);
  // Where the machine does not say what the touch was: a page that may be read was written to.
  const bool write =
      kind == TouchKind::kWrite || (kind == TouchKind::kUnknown && state != PageState::kInvalid);
  const bool settled = !log_.Outstanding(session_);
  return Answer(*tracked, page, tracked->states.OnTouch(page, write, settled), settled);
}

bool PagedMemory::Answer(Tracked& tracked, uint64_t page, const Touch& touch, bool settled) {
  const uint64_t address = tracked.base + page * kPageBytes;
  if (touch.fetch.count != 0) {
    Context* const context = TrafficContext(nullptr);
    if (context == nullptr) return Fail(CUDA_ERROR_CONTEXT_IS_DESTROYED, address);
    const CUresult status =
        traffic::Fetch(session_, *context, tracked.base + touch.fetch.offset(), touch.fetch.bytes(),
                       tracked.views->at(touch.fetch.offset()));
    // At exit the session is over, and destructors of the program may still look at the bytes that
    // it had.
    const bool ending = CurrentPhase() == Phase::kExiting;
    if (status != CUDA_SUCCESS && !ending) return Fail(status, address);
    tracked.states.SetFetched(touch.fetch, settled);
    if (!tracked.views->Allow(touch.fetch, PageAccess::kRead)) {
      return Fail(CUDA_ERROR_OUT_OF_MEMORY, address);
    }
  }
  if (touch.write.count != 0) {
    tracked.states.SetDirty(touch.write, settled);
    for (uint64_t at = touch.write.first; at < touch.write.end(); ++at) {
      if (!tracked.states.unsettled(at)) continue;
      auto& before = tracked.before[at];
      before = std::make_unique<std::array<uint8_t, kPageBytes>>();
      memcpy(before->data(), tracked.views->at(at * kPageBytes), kPageBytes);
    }
    if (!tracked.views->Allow(touch.write, PageAccess::kWrite)) {
      return Fail(CUDA_ERROR_OUT_OF_MEMORY, address);
    }
  }
  if (tracked.states.any_unsettled()) SetPagedBit(session_.number(), kUnsettledPages, true);
  return true;
}

// The program can then only be stopped: it must not go on with bytes that are not the device's.
bool PagedMemory::Fail(CUresult status, uint64_t address) {
  const char* name = ErrorName(status);
  Say("the program used memory at 0x%llx, whose bytes the server cannot give any more (%s); the "
      "program ends here",
      static_cast<unsigned long long>(address), name == nullptr ? "an error" : name);
  return false;
}

}  // namespace rgpu::shim
