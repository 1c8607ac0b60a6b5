#include "rgpu_server/executor/reaper.h"

#include <algorithm>

#include "rgpu_server/executor/executor.h"

namespace rgpu::exec {

void Reaper::Start() {
  NeedThread("rgpu-reap", [this] { Run(); });
}

void Reaper::Add(const std::shared_ptr<Context>& context, std::function<void()> destroy,
                 std::function<void()> release, uint64_t frees) {
  std::vector<std::shared_ptr<Point>> fences;
  // If recording fails, the session is sticky or nothing is outstanding.
  if (executor_.MakeCurrent(*context) == CUDA_SUCCESS) {
    executor_.order().EverythingIn(*context, false, &fences);
  }
  AddBehind(std::move(fences), context, std::move(destroy), std::move(release), frees);
}

void Reaper::AddBehind(std::vector<std::shared_ptr<Point>> fences,
                       const std::shared_ptr<Context>& context, std::function<void()> destroy,
                       std::function<void()> release, uint64_t frees) {
  executor_.ledger().AddFreeing(frees);
  std::erase_if(fences,
                [this](const auto& fence) { return executor_.Query(*fence) == CUDA_SUCCESS; });
  // While a load is measured, nothing may be freed.
  const bool at_once = fences.empty() && pending_.empty() && !executor_.memory().measuring();
  Item item{++added_, context, std::move(fences), std::move(destroy), std::move(release), frees};
  if (at_once) {
    const MemoryAccount::Change change(executor_.memory());
    executor_.Unlocked([&] {
      item.destroy();
      return 0;
    });
    return Finish(item);
  }
  pending_.insert(item.number);
  waiting_.push_back(std::move(item));
  Settle();
  if (waits()) executor_.poller().Wake();
}

void Reaper::Settle() {
  if (waiting_.empty()) return;
  std::erase_if(waiting_, [this](Item& item) {
    std::erase_if(item.fences,
                  [this](const auto& fence) { return executor_.Query(*fence) == CUDA_SUCCESS; });
    if (!item.fences.empty()) return false;
    ready_.push_back(std::move(item));
    return true;
  });
  if (!ready_.empty()) ready_changed_.notify_one();
}

template <typename Gone>
void Reaper::WaitUntil(Gone gone) {
  if (gone()) return;
  executor_.role().Yield();
  executor_.poller().Hurry();
  std::unique_lock lock(executor_.mutex(), std::adopt_lock);
  executor_.changed().wait(lock, [&] { return gone() || executor_.sticky() != CUDA_SUCCESS; });
  lock.release();
}

void Reaper::WaitAll() {
  const uint64_t last = added_;
  WaitUntil([&] { return pending_.empty() || *pending_.begin() > last; });
}

void Reaper::WaitForComplete() {
  Settle();
  std::set<uint64_t> complete = pending_;
  for (const Item& item : waiting_) complete.erase(item.number);
  WaitUntil([&] {
    return std::ranges::none_of(complete, [&](uint64_t one) { return pending_.contains(one); });
  });
}

// The object is gone in any case: destroyed now, or with its context.
void Reaper::Finish(const Item& item) {
  if (item.release) item.release();
  executor_.ledger().SubFreeing(item.frees);
}

bool Reaper::Enter(const Item& item) {
  if (item.context != nullptr) {
    return !item.context->dead && executor_.MakeCurrent(*item.context) == CUDA_SUCCESS;
  }
  executor_.objects().contexts.ForEach([this](const auto& any) { executor_.MakeCurrent(*any); });
  return true;
}

void Reaper::Destroy(const Item& item) {
  const MemoryAccount::Change change(executor_.memory());
  if (Enter(item)) {
    executor_.Unlocked([&] {
      item.destroy();
      return 0;
    });
  }
  Finish(item);
}

void Reaper::Run() {
  std::unique_lock lock(executor_.mutex());
  for (;;) {
    ready_changed_.wait(lock, [this] { return !ready_.empty(); });
    const Item item = std::move(ready_.front());
    ready_.pop_front();
    lock.release();
    Destroy(item);
    executor_.FlushNotices();
    lock = std::unique_lock(executor_.mutex(), std::adopt_lock);
    pending_.erase(item.number);
    executor_.changed().notify_all();
  }
}

}  // namespace rgpu::exec
