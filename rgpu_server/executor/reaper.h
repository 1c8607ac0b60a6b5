// Carries out what was destroyed: at once where the device is idle, else on a thread of its own
// once the work that came before is complete, so that the driver has nothing to wait for and the
// decoder never waits for it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "rgpu_server/executor/streams.h"

namespace rgpu::exec {

class Executor;

class Reaper {
 public:
  explicit Reaper(Executor& executor) : executor_(executor) {}
  void Start();

  // All with the executor's lock held.
  // `destroy` is run without the lock, in `context`, when everything issued so far in the context
  // is complete; then `release` with the lock.  `frees`: the bytes that this gives back to the
  // lease, about; other processes that need memory wait for them.
  void Add(const std::shared_ptr<Context>& context, std::function<void()> destroy,
           std::function<void()> release, uint64_t frees = 0);
  // The same behind `fences` only.  `context` may be null: any will do, or none.
  void AddBehind(std::vector<std::shared_ptr<Point>> fences,
                 const std::shared_ptr<Context>& context, std::function<void()> destroy,
                 std::function<void()> release, uint64_t frees = 0);
  // Moves on what has become possible.
  void Settle();
  // Waits, without the lock, until everything added before is gone.
  void WaitAll();

 private:
  struct Item {
    uint64_t number = 0;
    std::shared_ptr<Context> context;
    std::vector<std::shared_ptr<Point>> fences;
    std::function<void()> destroy;
    std::function<void()> release;
    uint64_t frees = 0;
  };
  void Run();
  bool Enter(const Item& item);
  void Destroy(const Item& item);
  void Finish(const Item& item);

  Executor& executor_;
  std::condition_variable ready_changed_;
  std::deque<Item> waiting_;
  std::deque<Item> ready_;
  uint64_t added_ = 0;
  std::set<uint64_t> pending_;  // numbers of what was added and is not gone
};

}  // namespace rgpu::exec
