// Destroys objects for the client: at once if the device is idle, else on a thread of its own when
// earlier work is complete. So the driver has nothing to wait for in the destroying call, and the
// decoder never waits.
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

  // All of these: with the executor's lock held.
  // Runs `destroy` without the lock, in `context`, when everything issued so far in the context is
  // complete; then runs `release` with the lock. `frees`: about how many bytes the lease gets back.
  // Other processes of the lease that need memory wait for them.
  void Add(const std::shared_ptr<Context>& context, std::function<void()> destroy,
           std::function<void()> release, uint64_t frees = 0);
  // The same after `fences` only. `context` may be null: then any current context will do.
  void AddBehind(std::vector<std::shared_ptr<Point>> fences,
                 const std::shared_ptr<Context>& context, std::function<void()> destroy,
                 std::function<void()> release, uint64_t frees = 0);
  // Makes the items ready whose fences are complete.
  void Settle();
  // Some items have fences that are not known to be complete: the poller must call Settle.
  bool waits() const { return !waiting_.empty(); }
  // Waits, without the lock, until everything added before is destroyed.
  void WaitAll();
  // Waits, without the lock, until everything is destroyed whose fences are complete by now: what
  // the program has seen complete is then no longer charged.
  void WaitForComplete();

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
  // Waits, without the lock, until `gone` is true or the session has failed.
  template <typename Gone>
  void WaitUntil(Gone gone);
  bool Enter(const Item& item);
  void Destroy(const Item& item);
  void Finish(const Item& item);

  Executor& executor_;
  std::condition_variable ready_changed_;
  std::deque<Item> waiting_;
  std::deque<Item> ready_;
  uint64_t added_ = 0;
  std::set<uint64_t> pending_;  // numbers of items not yet destroyed
};

}  // namespace rgpu::exec
