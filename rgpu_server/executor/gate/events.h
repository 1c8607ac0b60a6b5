// What happens at the gate, and what the gate's shell is to do about it.
//
// `GateState::Handle` takes one event and the time, and returns the actions.  The shell (gate.h)
// has the threads, the lock, the clock, the lease's page and the driver.
#pragma once

#include <cstdint>
#include <memory>
#include <variant>

#include "rgpu_common/native/lease/token.h"
#include "rgpu_server/executor/gate/stream_work.h"

namespace rgpu::exec {

namespace event {

// A command asks whether `ns` of predicted device work may go to the driver now.
// Answered by one of admit, hold and enter.
struct Asked {
  uint64_t ns = 0;
  uint64_t others_ns = 0;    // predicted work that the lease's other workers have on the device
  bool has_streams = false;  // the client has streams besides the legacy stream
  // Asked by a host function: its stream stands still until the answer is admit.
  bool in_stream = false;
  // Set if that stream has ended a client wait: work that was set aside for it runs when it goes
  // on, and counts as on the device again when the answer is admit.
  const ClientWaits* returns = nullptr;
};
// After the action enter: the slot said so, and then the page had this grant.
// Answered by admit or hold.
struct Entered {
  lease::Grant grant;
};
// The page was read.  Sent when its word has changed, and now and then.
struct Looked {
  lease::Grant grant;
  uint64_t heartbeat_ns = 0;    // when the token loop last lived
  uint32_t workers = 0;         // of the lease
  uint32_t active_workers = 0;  // of those, that work under a grant
  uint64_t request_ppm = 0;     // the lease's share
};
// From now on the decoder holds commands back, or no longer does.
struct Holding {
  bool holding = false;
};
// A thread begins or ends to wait until its Asked is answered by admit.
struct AwaitBegan {};
struct AwaitEnded {};

// The driver has taken a piece of device work.
struct Issued {
  StreamWork& stream;
  ContextOrder& order;
  const std::shared_ptr<Estimate>& kind;
  uint64_t units = 0;
};
// The driver has taken an event behind all work of the stream.  Sent only if some of that work has
// no marker yet.  `GateState::last_marker` is the number of the new one.
struct Marked {
  StreamWork& stream;
};
// The work up to a marker is complete.
struct Completed {
  StreamWork& stream;
  uint64_t marker = 0;
  uint64_t began_ns = 0;  // when it began on the device; 0: the driver did not say
  uint64_t done_ns = 0;   // when it was complete on the device
  uint64_t found_ns = 0;  // when the worker learnt that
  bool same_word = true;  // the page still has the grant that the state knows
};
// A thread has waited for this marker's event.
struct Awaited {
  uint64_t marker = 0;
};
// The stream is gone, with all work that it had.
struct Forgotten {
  StreamWork& stream;
  bool same_word = true;
};

// The driver has taken the host function of a client wait.
struct WaitLaunched {
  StreamWork& stream;
  ContextOrder& order;
};
// A wait for a value in memory, whose place this is, gets into the stream, and a halt behind it.
// WaitEnded and WaitPassed tell that the stream has come to the halt, and gone on, or that the
// driver has refused the wait.
struct ValueWaitLaunched {
  StreamWork& stream;
  ContextOrder& order;
  const WaitPlace& place;
};
// The driver has made the stream wait for an event that comes behind these places.
struct OrderedBehind {
  StreamWork& stream;
  ContextOrder& order;
  const WaitPlaces& behind;
};
// The stream stands in a client wait; the wait has ended; the stream has passed it.  `for_value`:
// what waits is a graph, for a value in memory.
struct WaitBegan {
  WaitPlace place;
  bool for_value = false;
};
struct WaitEnded {
  WaitPlace place;
};
struct WaitPassed {
  WaitPlace place;
};
// A host function's stream goes on without an answer to its Asked, because the executor's lock was
// not to be had.  `waits`: as Asked::returns; null: no client wait has ended.  `awaited`: it has
// sent AwaitBegan.
struct WentOn {
  std::shared_ptr<ClientWaits> waits;
  bool awaited = false;
};

// The client has no connection; it has one again.
struct LinkLost {};
struct LinkBack {};
// The session has failed and executes nothing more.
struct Failed {};
// After the action ask_driver: none of the session's work runs.
struct Stopped {};
// Some of the work on the device runs at this moment.
struct StillRuns {};
// Time has passed: the thread that sleeps on the page has woken up.
struct Ticked {
  bool has_streams = false;
};

}  // namespace event

using GateEvent =
    std::variant<event::Asked, event::Entered, event::Looked, event::Holding, event::AwaitBegan,
                 event::AwaitEnded, event::Issued, event::Marked, event::Completed, event::Awaited,
                 event::Forgotten, event::WaitLaunched, event::ValueWaitLaunched,
                 event::OrderedBehind, event::WaitBegan, event::WaitEnded, event::WaitPassed,
                 event::WentOn, event::LinkLost, event::LinkBack, event::Failed, event::Stopped,
                 event::StillRuns, event::Ticked>;

// The shell publishes the slot (GateState::slot) before it does these.
struct GateActions {
  // The answer to Asked or Entered.
  bool admit = false;
  bool hold = false;
  bool enter = false;  // read the page's word again after the slot is published, and send Entered

  bool signal = false;        // tell the token loop to look at the slot
  bool wake_held = false;     // have everybody who was answered with hold ask again
  bool wake_watcher = false;  // wake the thread that waits for work on the device
  bool mark = false;          // record a marker behind each of GateState::unmarked
  bool hurry = false;         // look soon which work is complete: no thread waits for it any more
  bool look = false;          // send Looked
  bool ask_driver = false;    // the session has failed: send Stopped if none of its work runs
  bool overdue = false;       // with ask_driver: end the process if some of its work still runs
  uint64_t charged_ns = 0;    // of the device's time

  void operator|=(const GateActions& other) {
    admit |= other.admit;
    hold |= other.hold;
    enter |= other.enter;
    signal |= other.signal;
    wake_held |= other.wake_held;
    wake_watcher |= other.wake_watcher;
    mark |= other.mark;
    hurry |= other.hurry;
    look |= other.look;
    ask_driver |= other.ask_driver;
    overdue |= other.overdue;
    charged_ns += other.charged_ns;
  }
};

// What the worker's slot in the lease's page is to say (lease/page.h: SlotGate).
struct SlotImage {
  uint64_t active_gen = 0;
  uint64_t near_end_gen = 0;
  uint64_t spent_gen = 0;
  bool wants = false;
  uint32_t kernel_us = 0;
  uint64_t in_flight_ns = 0;
  uint64_t held_back_ns = 0;
  uint64_t drained_ns = 0;

  bool operator==(const SlotImage&) const = default;
};

}  // namespace rgpu::exec
