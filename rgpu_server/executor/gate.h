// The gate in front of the device: work passes while the lease has the token (lease/token.h), as
// much as the slice and the limit on what is on the device allow; the rest is held back in order.
//
// What is on the device is counted in predicted time, because a count of kernels says nothing about
// how long it takes to get the device back.  What was complete when is learnt from the markers of
// the streams; a thread waits for them while the token is shared, so that it is given on at once.
// All functions are called with the executor's lock held, unless they say otherwise.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "rgpu_common/native/base/fd.h"
#include "rgpu_common/native/lease/token.h"
#include "rgpu_server/executor/device_clock.h"
#include "rgpu_server/executor/links.h"
#include "rgpu_server/executor/own_share.h"
#include "rgpu_server/executor/patience.h"
#include "rgpu_server/executor/streams.h"

namespace rgpu::transport {
class Connection;
}

namespace rgpu::exec {

class Executor;

class Gate {
 public:
  // `signal`: the lease's eventfd; -1 in development mode, where nobody schedules.
  Gate(Executor& executor, lease::Page* page, uint32_t slot, base::UniqueFd signal);

  // `lane` is woken when work that is held back may pass.  While `links` is suspended none may.
  void Start(transport::Connection* lane, const Links* links);
  // Without the lock: the client has a connection again.
  void LinkIsBack();
  // The client has no connection: nothing new goes to the device.  Callable without the lock.
  bool suspended() const { return links_ != nullptr && links_->suspended(); }

  // Whether work of about `ns` may go to the device now.
  bool Admits(uint64_t ns);
  // True, and callable without the lock: whatever comes next may go.  So it is for all but the
  // first launch of a program that nobody competes with.
  bool AdmitsAll() const {
    return roomy_.load(std::memory_order_relaxed) ==
               static_cast<uint32_t>(page_->token.word.load(std::memory_order_acquire)) &&
           !suspended();
  }
  // The decoder holds work back (or no longer does).
  void SetHolding(bool holding);
  bool holding() const { return holding_; }
  // Within a call: waits until Admits says so, without the lock, in a thread that gives up the
  // decoder.  An error: the session is spent.
  CUresult Await(uint64_t ns);
  // Within a stream, without the lock: work that is no command of the driver's, and that the stream
  // waits for.  Waits only where nothing on the device waits for the stream.
  void AwaitInStream(uint64_t ns);
  // Within a stream, without the lock, while it lives: the stream waits for the client.  If that
  // takes long the device is not kept for what is behind; at the end it is waited for anew.
  class ClientWait {
   public:
    // `last`: it is the last wait in the place, which the stream then passes.
    ClientWait(Gate& gate, const Stall& place, bool last = true);
    ~ClientWait();
    ClientWait(const ClientWait&) = delete;
    ClientWait& operator=(const ClientWait&) = delete;

   private:
    Gate& gate_;
    const Stall place_;
    const bool last_;
  };
  // Whether anybody schedules; callable without the lock.
  bool on() const { return lease::ReadGrant(page_).phase != lease::Phase::kOff; }

  // Work was given to `stream`.
  void Issued(Stream& stream, const std::shared_ptr<Estimate>& kind, uint64_t units);
  // A marker that stands behind work was recorded.
  void Marked(Stream& stream, const std::shared_ptr<Point>& point);
  // Its work is complete.
  void Completed(Stream& stream, const Marker& marker);
  // Work of about `ns` was done for the lease by somebody else than the device.
  void Spent(uint64_t ns);
  // The stream goes, and takes what it had on the device with it.
  void Forget(Stream& stream);
  // The next work begins a busy time of the device: it is charged from where it begins there, not
  // from when it was issued.
  bool wants_begin() const { return active_ != 0 && in_flight_ == 0 && !alone(); }
  // Whether its markers are worth more than usual: the device's time is measured.
  bool scheduled() const { return grant_.phase != lease::Phase::kOff; }
  // Nobody else wants the device.
  bool alone() const { return !scheduled() || grant_.phase == lease::Phase::kOpen; }
  // Marks what has been issued since the last marker: the decoder is about to sleep.
  void MarkRest();
  bool has_rest() const { return !unmarked_.empty(); }
  // Work is on the device and somebody looks after it.
  void Alive();

 private:
  // Threads: one sleeps on the page; one waits for the device while that matters.
  void WatchGrants();
  void WatchDevice();
  // Reads the grant, and does what it asks for.
  void Look();
  bool Enter();
  void Leave(bool tell);
  void GiveBack(uint64_t now_ns);
  bool StillRuns();
  void Abandon();
  bool Fits(uint64_t ns);
  bool FitsAlone(uint64_t ns);
  // Of an open grant: there is little on the device.
  bool HasRoom() const { return in_flight_ns_ < open_budget_ns_ / 2; }
  bool MayBeStuck() const;
  uint64_t LeaseInFlight() const;
  void CountWorkers();
  void CountBusy(uint64_t until_ns);
  void CountRunning();
  void SetRoomy();
  void SetAside(uint64_t now_ns);
  void TakeBack(Stream& stream, uint64_t now_ns);
  void NoLongerAside(const Stream& stream);
  void PutAside(Stream& stream, const Pieces& pieces);
  void RanAside(Stream& stream, uint64_t since_ns);
  void ForgetAside();
  void AwaitReturn(const StreamStalls& stalls);
  void Return(const StreamStalls* stalls);
  void TakeBackLate();
  std::unique_lock<std::mutex> LockInStream();
  std::unique_lock<std::mutex> WaitInStream(const std::function<bool()>& admits);
  void WakeInStreams();
  std::vector<std::shared_ptr<Stream>> Returning(const StreamStalls* stalls);
  bool MuchAside() const;
  bool HasStalled();
  bool AdmitsInStream(uint64_t ns);
  void Want();
  void NoLongerHeld();
  void Signal();
  void WakeHeld();
  void WakeThread();
  const std::shared_ptr<Point>& NextPoint() const;
  bool WaitForWork(std::unique_lock<std::mutex>& lock);
  lease::SlotGate& gate() { return page_->slots[slot_].gate; }

  Executor& executor_;
  lease::Page* page_;
  const uint32_t slot_;
  const base::UniqueFd signal_;
  transport::Connection* lane_ = nullptr;
  const Links* links_ = nullptr;
  std::condition_variable opened_;  // for calls that wait
  std::condition_variable work_;    // for the thread that watches the device

  lease::Grant grant_;
  uint64_t active_ = 0;        // generation, as in the slot
  bool used_ = false;          // something was released under the grant
  uint64_t in_flight_ns_ = 0;  // predicted
  uint64_t in_flight_ = 0;     // pieces
  uint64_t counted_ns_ = 0;    // up to when busy time was counted
  uint64_t last_done_ns_ = 0;
  Patience patience_;
  uint64_t kernel_ns_ = 0;                     // of a piece, averaged
  bool holding_ = false;                       // the decoder
  std::atomic<uint32_t> awaiting_{0};          // calls, and streams
  uint64_t held_since_ns_ = 0;                 // 0: nothing is held
  std::deque<std::shared_ptr<Point>> points_;  // behind what is on the device, oldest first
  std::vector<std::shared_ptr<Stream>> unmarked_;
  // Taken behind the executor's lock or alone: a host function must not wait for a thread that is
  // in the driver.  For who has left the list nothing is set aside.
  std::mutex stalled_mutex_;
  std::vector<std::shared_ptr<StreamStalls>> stalled_;
  std::atomic<bool> any_aside_{false};  // set with it
  uint64_t wakes_ = 0;                  // changed with it
  std::condition_variable in_stream_opened_;
  std::atomic<bool> late_{false};
  std::vector<std::shared_ptr<Stream>> aside_streams_;  // with work that is set aside
  Pieces aside_;                                        // all of it
  bool in_stream_ = false;
  uint32_t slots_ = lease::kSlots;  // those behind are not in use
  uint64_t open_budget_ns_ = 0;
  // The low half of the word of an open grant that has room, else 0, which is no word of one.
  std::atomic<uint32_t> roomy_{0};
  DeviceClock clock_;
  bool asleep_ = false;
  bool stale_ = false;           // the loop is gone
  uint64_t spent_since_ns_ = 0;  // the session is spent, and has work on the device
  OwnShare own_share_;
};

}  // namespace rgpu::exec
