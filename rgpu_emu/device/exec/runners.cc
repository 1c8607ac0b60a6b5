#include "rgpu_emu/device/exec/runners.h"

#include <utility>

namespace rgpu::emu {
namespace {

// The memory that a session has without a charge (docs/explanation/quotas-memory.md). The first
// part suffices for the largest block, or for hundreds of small ones together. The second lets
// every thread of the pool run blocks of 1,024 threads with 4 KiB of frame each.
constexpr uint64_t kBaseBytes = 128U << 20;
constexpr uint64_t kBytesPerThread = 4U << 20;

BlockMemory NeedOf(const Grid& grid) {
  return BlockMemory::NeededFor(grid.kernel(), grid.threads_per_block(), grid.shared_bytes());
}

}  // namespace

Runners::Runners(const RunnerOptions& options)
    : options_(options),
      base_bytes_(options.memory_bytes != 0 ? options.memory_bytes
                                            : kBaseBytes + kBytesPerThread * options.threads),
      limit_(base_bytes_) {}

void Runners::Count(BlockRunner* runner, uint64_t bytes) {
  held_ += bytes - runner->counted_bytes;
  runner->counted_bytes = bytes;
}

// Frees memory of idle runners.
bool Runners::MakeRoom(uint64_t more) {
  while (held_ + more > limit_ && !idle_.empty()) {
    Count(idle_.back().get(), 0);
    idle_.pop_back();
  }
  return held_ + more <= limit_;
}

// The lock is held. Null: there is no room now.
std::unique_ptr<BlockRunner> Runners::Take(const BlockMemory& need) {
  std::unique_ptr<BlockRunner> runner;
  uint64_t more = 0;
  if (!idle_.empty()) {
    runner = std::move(idle_.back());
    idle_.pop_back();
    more = need.Beyond(runner->held());
    if (more == 0) {  // the usual case
      ++busy_;
      return runner;
    }
  }
  if (runner != nullptr && !MakeRoom(more)) {
    Count(runner.get(), 0);
    runner.reset();
  }
  if (runner == nullptr) {
    if (!MakeRoom(need.total())) return nullptr;
    runner = std::make_unique<BlockRunner>(options_, made_++ % options_.sm_count);
  }
  Count(runner.get(), runner->counted_bytes + need.Beyond(runner->held()));
  ++busy_;
  return runner;
}

// Calls `take` until it returns true, in order of arrival, or nothing else runs, or the grid has
// ended. Returns true if it had to wait.
template <typename TakeFunction>
bool Runners::AwaitTurn(Grid* grid, TakeFunction take) {
  std::unique_lock lock(mutex_);
  if (waiting_.empty() && (take() || busy_ == 0)) return false;
  grid->Pause();
  const auto mine = waiting_.insert(waiting_.end(), grid);
  freed_.wait(lock, [&] {
    if (grid->stopped() || grid->exhausted()) return true;
    if (waiting_.front() != grid) return false;
    return take() || busy_ == 0;
  });
  waiting_.erase(mine);
  grid->Resume();
  if (!waiting_.empty()) freed_.notify_all();
  return true;
}

std::unique_ptr<BlockRunner> Runners::Await(Grid* grid, bool* waited) {
  const BlockMemory need = NeedOf(*grid);
  std::unique_ptr<BlockRunner> runner;
  *waited = AwaitTurn(grid, [&] {
    runner = Take(need);
    return runner != nullptr;
  });
  return runner;
}

std::vector<std::unique_ptr<BlockRunner>> Runners::AwaitAll(Grid* grid, bool* waited) {
  std::vector<std::unique_ptr<BlockRunner>> runners;
  *waited = AwaitTurn(grid, [&] { return TakeAll(*grid, &runners); });
  return runners;
}

bool Runners::TakeAll(const Grid& grid, std::vector<std::unique_ptr<BlockRunner>>* runners) {
  const BlockMemory need = NeedOf(grid);
  while (runners->size() < grid.blocks()) {
    auto runner = Take(need);
    if (runner == nullptr) {
      for (auto& taken : *runners) Put(std::move(taken));
      runners->clear();
      return false;
    }
    runners->push_back(std::move(runner));
  }
  return true;
}

std::unique_ptr<BlockRunner> Runners::Try(const Grid& grid) {
  const std::lock_guard lock(mutex_);
  return waiting_.empty() ? Take(NeedOf(grid)) : nullptr;
}

// Keeps as many idle runners as can be busy at once.
void Runners::Return(std::unique_ptr<BlockRunner> runner) {
  const std::lock_guard lock(mutex_);
  Put(std::move(runner));
  if (!waiting_.empty()) freed_.notify_all();
}

// The lock is held.
void Runners::Put(std::unique_ptr<BlockRunner> runner) {
  --busy_;
  const uint64_t held = runner->held().total();  // less than counted if memory was refused
  const bool keep = idle_.size() < options_.threads && held_ <= limit_;
  Count(runner.get(), keep ? held : 0);
  if (keep) {
    idle_.push_back(std::move(runner));
  } else {
    runner.reset();  // first free the memory, then let others use the room
  }
}

void Runners::Wake() {
  const std::lock_guard lock(mutex_);
  if (!waiting_.empty()) freed_.notify_all();
}

uint64_t Runners::held() const {
  const std::lock_guard lock(mutex_);
  return held_;
}

void Runners::AddRoom(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  limit_ += bytes;
  if (!waiting_.empty()) freed_.notify_all();
}

void Runners::TakeRoom(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  limit_ -= bytes;
  MakeRoom(0);
}

}  // namespace rgpu::emu
