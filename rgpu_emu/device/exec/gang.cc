#include "rgpu_emu/device/exec/gang.h"

#include <chrono>

namespace rgpu::emu {
namespace {

// How long a thread without a block waits before it looks whether it should leave.
constexpr auto kPatience = std::chrono::milliseconds(2);

}  // namespace

Gang::Gang(Grid* grid, const std::vector<std::unique_ptr<BlockRunner>>& runners)
    : live_(runners.size()) {
  uint64_t index = 0;
  for (const auto& runner : runners) {
    runner->Place(grid, index++);
    waiting_.push_back(runner.get());
  }
}

bool Gang::WantsHelp() {
  const std::lock_guard lock(mutex_);
  return threads_ < live_;
}

// Gives the last block back and returns the next one. Null: the thread has nothing more to do.
BlockRunner* Gang::Next(BlockRunner* last, bool ended, const std::atomic<bool>* leave) {
  std::unique_lock lock(mutex_);
  if (last != nullptr && ended && --live_ == 0) changed_.notify_all();
  if (last != nullptr && !ended) {
    waiting_.push_back(last);
    changed_.notify_one();
  }
  while (live_ != 0 && (leave == nullptr || !leave->load(std::memory_order_relaxed))) {
    if (!waiting_.empty()) {
      BlockRunner* next = waiting_.front();
      waiting_.pop_front();
      return next;
    }
    changed_.wait_for(lock, kPatience);
  }
  return nullptr;
}

void Gang::Run(const std::atomic<bool>* leave) {
  size_t blocks = 0;
  {
    const std::lock_guard lock(mutex_);
    ++threads_;
    blocks = live_;
  }
  size_t waited = 0;  // turns in a row in which blocks only waited
  BlockRunner* block = nullptr;
  bool ended = false;
  while ((block = Next(block, ended, leave)) != nullptr) {
    const BlockRunner::Turn turn = block->RunTurn();
    ended = turn == BlockRunner::Turn::kEnded;
    waited = turn == BlockRunner::Turn::kWaited ? waited + 1 : 0;
    if (waited < blocks) continue;
    waited = 0;
    block->Idle();
  }
  const std::lock_guard lock(mutex_);
  --threads_;
}

}  // namespace rgpu::emu
