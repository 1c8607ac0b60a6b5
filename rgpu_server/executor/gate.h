// The gate in front of the device, as the executor sees it: the shell around GateState.
//
// GateState (gate/state.h) decides: work passes while the lease has the token, as much as the slice
// and the budget for work on the device allow; the rest is held back in order.  The shell has what
// those decisions need and cause: the lease's page, the clock, two threads, the driver, and the
// waiting of calls and host functions.
//
// All functions are called with the executor's lock held, unless they say otherwise.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/base/fd.h"
#include "rgpu_common/native/lease/token.h"
#include "rgpu_server/executor/device_clock.h"
#include "rgpu_server/executor/gate/state.h"
#include "rgpu_server/executor/gate_notes.h"
#include "rgpu_server/executor/links.h"
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

  // `lane` is woken when the decoder may ask again for work that it holds back.  While `links` is
  // suspended nothing is admitted.
  void Start(transport::Connection* lane, const Links* links);
  // Without the lock: the client has a connection again.
  void LinkIsBack();
  // The client has no connection.  Callable without the lock.
  bool suspended() const { return links_ != nullptr && links_->suspended(); }

  // Whether work of about `ns` may go to the device now.
  bool Admits(uint64_t ns) { return Ask({.ns = ns}); }
  // Callable without the lock.  True: whatever comes next may go, so that a launch of a program
  // that nobody competes with takes no lock for the gate.
  bool AdmitsAll() const {
    return roomy_.load(std::memory_order_relaxed) ==
               static_cast<uint32_t>(page_->token.word.load(std::memory_order_acquire)) &&
           !suspended();
  }
  // The decoder holds work back, or no longer does.
  void SetHolding(bool holding) { Tell(event::Holding{holding}); }
  bool holding() const { return state_.holding(); }
  // Within a call: waits until the work is admitted, without the lock, in a thread that gives up
  // the decoder.  An error: the session has failed.
  CUresult Await(uint64_t ns);
  // In a host function, without the lock: work that the worker itself does for the stream.  Does
  // not wait while the session has work on the device, since that work may wait for this stream.
  void AwaitInStream(uint64_t ns);
  // In a host function, without the lock.  The stream waits for the client as long as this lives.
  // The end of it waits for the token if work behind the stream was set aside.
  class ClientWait {
   public:
    // `last`: the host function has no further wait, so the stream then passes the place.
    ClientWait(Gate& gate, const WaitPlace& place, bool last = true);
    ~ClientWait();
    ClientWait(const ClientWait&) = delete;
    ClientWait& operator=(const ClientWait&) = delete;

   private:
    Gate& gate_;
    const WaitPlace place_;
    const bool last_;
  };
  // In a host function, without the lock: a graph in the stream has come to a wait for a value in
  // memory, none of its work runs, and a halt behind the wait calls GoOn.
  void BeginValueWait(const WaitPlace& place);
  // In a host function, without the lock: the stream has come to the end of the wait at `place`.
  // Waits for the token if work behind the stream was set aside.  `last`: as in ClientWait.
  void GoOn(const WaitPlace& place, bool last = true);
  // Whether anybody schedules the device.  Callable without the lock.
  bool on() const { return lease::ReadGrant(page_).phase != lease::Phase::kOff; }

  // The driver has taken a piece of device work.
  void Issued(Stream& stream, const std::shared_ptr<Estimate>& kind, uint64_t units);
  // `point` was recorded behind work of the stream that had no marker.  Returns the number of that
  // work for Marker::work.
  uint64_t Marked(Stream& stream, const std::shared_ptr<Point>& point);
  // All work up to `marker` is complete.
  void Completed(Stream& stream, const Marker& marker);
  // The driver has taken a host function with a client wait.
  void WaitLaunched(Stream& stream) { Tell(event::WaitLaunched{stream, stream.context->order}); }
  // The driver gets a wait for a value in memory next, and behind it a halt, which calls GoOn.
  void ValueWaitLaunched(Stream& stream, const WaitPlace& place) {
    Tell(event::ValueWaitLaunched{stream, stream.context->order, place});
  }
  // The driver has refused the wait or the halt.
  void ValueWaitRefused(const WaitPlace& place) {
    Tell(event::WaitEnded{place});
    Tell(event::WaitPassed{place});
  }
  // The driver has made the stream wait for an event that comes behind `places`.
  void OrderedBehind(Stream& stream, const WaitPlaces& places) {
    Tell(event::OrderedBehind{stream, stream.context->order, places});
  }
  // Work of about `ns` was done for the lease, but not by the device.  Callable without the lock.
  void Spent(uint64_t ns);
  // The stream is gone, with all work that it had on the device.
  void Forget(Stream& stream);

  // The next work begins a busy time of the device.  That time is charged from where the work
  // begins on the device, not from where it was issued.
  bool wants_begin() const { return state_.begins_busy(); }
  // No other lease wants the device.
  bool alone() const { return state_.alone(); }
  // Records markers behind all work that has none.
  void MarkRest();
  bool has_rest() const { return !state_.unmarked().empty(); }
  // Tells the token loop that the worker lives.
  void Alive();

 private:
  // One thread sleeps on the page, one waits for work on the device while somebody waits for that.
  void WatchGrants();
  void WatchDevice();
  bool WaitForWork(std::unique_lock<std::mutex>& lock);
  void ChargeLongWork();

  // The state is told of an event, and what it answers is done.
  template <typename Event>
  void Tell(const Event& happened) {
    Tell(happened, base::NowNs());
  }
  template <typename Event>
  void Tell(const Event& happened, uint64_t now_ns) {
    if (notes_.any()) TakeNotes();
    Act(state_.Handle(happened, now_ns));
  }
  bool Ask(event::Asked asked);
  void Look();
  void LookAtSession();
  // Hands the notes of host functions to the state; `decide` before the next note comes.
  template <typename Decide>
  void TakeNotes(Decide decide);
  void TakeNotes();
  void Act(const GateActions& actions);
  void ActOnDriver(const GateActions& actions);
  void Publish();
  bool SameWord() const { return lease::SameGrant(page_, state_.grant()); }
  uint64_t OthersInFlight() const;
  bool WorkStillRuns();
  void ForgetDonePoints();

  void WaitInStream(uint64_t ns, const std::shared_ptr<ClientWaits>& waits);
  std::unique_lock<std::mutex> LockInStream();

  void Signal();
  void WakeHeld();
  void WakeThread();
  lease::SlotGate& gate() { return page_->slots[slot_].gate; }

  Executor& executor_;
  lease::Page* page_;
  const uint32_t slot_;
  const base::UniqueFd signal_;
  transport::Connection* lane_ = nullptr;
  const Links* links_ = nullptr;

  GateState state_;
  SlotImage published_;
  // The low half of the page's word if GateState::roomy, else 0, which is the low half of no open
  // grant's word.
  std::atomic<uint32_t> roomy_{0};
  uint32_t slots_ = lease::kSlots;  // no slot behind these is in use
  bool in_stream_ = false;          // a host function has the lock: the driver must not be called
  DeviceClock clock_;
  std::deque<std::pair<uint64_t, std::shared_ptr<Point>>> points_;  // of markers, by number

  std::condition_variable opened_;  // for calls that wait
  std::condition_variable work_;    // for the thread that watches the device
  bool asleep_ = false;             // that thread
  GateNotes notes_;                 // from host functions
};

}  // namespace rgpu::exec
