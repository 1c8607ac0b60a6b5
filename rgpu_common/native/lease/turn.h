// The gate of a worker that executes its operations itself, one after another, in one thread: the
// array seam's. It keeps the rules of token.h, as the driver seam's gate does
// (rgpu_server/executor/gate).
//
// An operation begins only under a grant, and a recalled grant goes back after the operation that
// runs. The time from the first operation of a batch to its end is charged as device time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "rgpu_common/native/base/fd.h"
#include "rgpu_common/native/lease/own_share.h"
#include "rgpu_common/native/lease/token.h"

namespace rgpu::lease {

class Turn {
 public:
  // Waits until the device has done everything that was issued. Returns how long the device worked
  // since the last call, in ns. Null in place of it: operations are complete when they return, and
  // the time between them is the measure.
  using Finish = uint64_t (*)();

  // So many operations may follow without asking.
  static constexpr uint64_t kMany = uint64_t{1} << 30;

  // `signal`: the lease's eventfd, a descriptor that this object closes. The page must stay mapped.
  Turn(Page* page, uint32_t slot, base::UniqueFd signal, Finish finish);
  // No thread is in Enter or Leave.
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // The operation before is over, and another one is to begin. Waits for at most `wait_ns`. Returns
  // how many operations may begin now, the first without asking, the others while `ready` equals
  // the low half of the page's word. 0: the time has passed. -1: `End` was called. `left`: how many
  // of the operations that were allowed last were not begun.
  int64_t Enter(uint64_t left, uint64_t wait_ns);
  // The operation before is over, and none is to begin.
  void Leave(uint64_t left);
  // Makes Enter return -1 within 50 ms, also in future. Callable in any thread.
  void End();

  const std::atomic<uint32_t>& ready() const { return ready_; }

 private:
  // Enter, with the lock.
  bool Continues();
  void Settle(uint64_t left);
  void Look(uint64_t now_ns);
  uint64_t Ask(uint64_t now_ns);
  uint64_t AskSlice(uint64_t now_ns);
  bool Activate(uint64_t now_ns);
  int64_t Admit(uint64_t count, uint64_t now_ns);
  uint64_t Portion(uint64_t budget_ns) const;
  void Want(uint64_t now_ns);
  void NoLongerHeld(uint64_t now_ns);
  void Drop(bool tell);
  void Signal();

  bool mine() const { return grant_.running() && grant_.generation == active_; }
  bool idle() const { return active_ != 0 && !running_ && held_since_ns_ == 0; }
  uint64_t OthersInFlight() const;
  uint64_t Workers() const;
  void Charge(uint64_t ns);
  void Measure(uint64_t ns, uint64_t operations);

  // The thread that looks after a long operation, and gives an unused slice back.
  void Watch();
  uint64_t WatcherSleepNs(uint64_t now_ns);
  // Makes the watcher look at about `at_ns`.
  void WatchAt(uint64_t at_ns);

  Slot& slot() { return page_->slots[slot_]; }
  SlotGate& gate() { return page_->slots[slot_].gate; }

  Page* const page_;
  const uint32_t slot_;
  const base::UniqueFd signal_;
  const Finish finish_;
  std::atomic<uint32_t> ready_{0};

  std::mutex mutex_;
  Grant grant_;
  uint64_t active_ = 0;  // the generation of the grant that the worker works under; 0: none
  bool used_ = false;    // an operation has begun under that grant
  bool spent_ = false;   // the grant was given back with work left, and the word has not changed
  bool stale_ = false;   // the token loop is gone
  OwnShare own_share_;
  bool ended_ = false;

  bool running_ = false;        // an operation runs
  bool charges_ = false;        // its time is charged, because the device is scheduled
  uint64_t granted_ = 0;        // operations that were allowed last and are not settled
  uint64_t spare_ = 0;          // of those, what was not begun when the worker left
  uint64_t since_ns_ = 0;       // when the first of them began
  uint64_t charged_ns_ = 0;     // what was charged for them already
  uint64_t drained_ns_ = 0;     // when the last operation ended
  uint64_t kernel_ns_ = 0;      // predicted time of one operation
  uint64_t held_since_ns_ = 0;  // 0: nothing is held back

  uint64_t begun_ns_ = 0;          // when an operation last began
  uint64_t left_ns_ = 0;           // when the worker last left
  uint64_t left_seen_ns_ = 0;      // as the watcher last saw it
  uint64_t watcher_wakes_ns_ = 0;  // when the watcher wakes by itself
  std::condition_variable watcher_;
  std::thread thread_;
};

}  // namespace rgpu::lease
