// The gate's decisions: which work of a session may go to the device, and when the lease's token
// goes back.  A pure state machine, without lock, clock, page or driver.
//
// The token is the right of one lease to put work on the device (lease/token.h).  The token loop
// gives it to a lease as a *grant*: a slice of time, or open until recall.  Work is admitted under
// a grant as far as the slice and the budget for work on the device allow.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <variant>
#include <vector>

#include "rgpu_common/native/lease/own_share.h"
#include "rgpu_server/executor/gate/device_work.h"
#include "rgpu_server/executor/gate/events.h"
#include "rgpu_server/executor/gate/patience.h"

namespace rgpu::exec {

// How long a stream stands in a client wait before the work behind it is set aside.  A client on
// the same host, or on a quick network, answers sooner: handing the device over would cost more.
inline constexpr uint64_t kClientNs = 5'000'000;

class GateState {
 public:
  template <typename Event>
  GateActions Handle(const Event& happened, uint64_t now_ns) {
    actions_ = {};
    if constexpr (std::is_same_v<Event, GateEvent>) {
      std::visit([&](const auto& one) { On(one, now_ns); }, happened);
    } else {
      On(happened, now_ns);
    }
    actions_.charged_ns = work_.TakeCharge();
    if (stale_) own_share_.Spend(actions_.charged_ns);
    slot_.in_flight_ns = work_.in_flight().ns;
    return actions_;
  }

  const SlotImage& slot() const { return slot_; }
  const lease::Grant& grant() const { return grant_; }
  // Somebody schedules the device, so its time is measured.
  bool scheduled() const { return grant_.phase != lease::Phase::kOff; }
  // No other lease wants the device.
  bool alone() const { return !scheduled() || grant_.phase == lease::Phase::kOpen; }
  // The session works under a grant: it has work on the device, or may put some there.
  bool active() const { return active_ != 0; }
  bool idle() const { return work_.empty(); }
  bool failed() const { return failed_; }
  bool link_lost() const { return link_lost_; }
  bool holding() const { return holding_; }
  bool any_aside() const { return !aside_.empty(); }
  // Whatever is asked for next is admitted, unless the page's word has changed.
  bool roomy() const {
    return !stale_ && grant_.phase == lease::Phase::kOpen && active_ != 0 &&
           active_ == grant_.generation && HasRoom();
  }
  // The next work begins a busy time of the device.
  bool begins_busy() const { return active_ != 0 && work_.empty() && !alone(); }
  // Nothing is on the device, but the slice is kept for a moment in case more work comes.
  bool in_grace() const {
    return grant_.phase == lease::Phase::kSlice && active_ != 0 && work_.empty();
  }
  // The device has worked for so long that the time is to be charged before the work is complete.
  bool RunsLong(uint64_t now_ns) const;

  const std::vector<std::shared_ptr<StreamWork>>& unmarked() const { return work_.unmarked(); }
  uint64_t last_marker() const { return work_.last_marker(); }
  // A thread waits for the device: somebody waits for what it finds.
  bool hurry() const { return holding_ || awaiting_ > 0 || (active_ != 0 && !alone()); }
  // The marker that this thread waits for.
  std::optional<uint64_t> ToWatch() const;
  // How long the thread that sleeps on the page may sleep.
  uint64_t SleepNs() const;

  // Before a stream comes behind new client waits, the work that it has must get a marker: that
  // work may be running, and work that comes later may not.
  enum class MarkFirst { kNothing, kStream, kAllStreams };
  static MarkFirst MustMark(const StreamWork& stream, const WaitPlaces& next);

 private:
  // Turns: state.cc.
  void On(const event::Asked& asked, uint64_t now_ns);
  void On(const event::Entered& entered, uint64_t now_ns);
  void On(const event::Looked& looked, uint64_t now_ns);
  void On(const event::Holding& holding, uint64_t now_ns);
  void On(const event::AwaitBegan&, uint64_t) { ++awaiting_; }
  void On(const event::AwaitEnded&, uint64_t now_ns);
  void On(const event::LinkLost&, uint64_t) { link_lost_ = true; }
  void On(const event::LinkBack&, uint64_t);
  void On(const event::Failed&, uint64_t) { failed_ = true; }
  void On(const event::Stopped&, uint64_t now_ns);
  void On(const event::StillRuns&, uint64_t now_ns);
  void On(const event::Ticked& ticked, uint64_t);
  // Work: work.cc.
  void On(const event::Issued& issued, uint64_t now_ns);
  void On(const event::Marked& marked, uint64_t);
  void On(const event::Completed& completed, uint64_t);
  void On(const event::Awaited& awaited, uint64_t) { work_.Unwatch(awaited.marker); }
  void On(const event::Forgotten& forgotten, uint64_t now_ns);
  void On(const event::WaitLaunched& launched, uint64_t);
  void On(const event::ValueWaitLaunched& launched, uint64_t now_ns);
  void On(const event::OrderedBehind& ordered, uint64_t);
  // Client waits: aside.cc.
  void On(const event::WaitBegan& began, uint64_t now_ns);
  void On(const event::WaitEnded& ended, uint64_t);
  void On(const event::WaitPassed& passed, uint64_t);
  void On(const event::WentOn& went_on, uint64_t now_ns);

  enum class Answer { kAdmit, kHold, kEnter };
  Answer Ask(uint64_t now_ns);
  Answer AskUnderGrant(uint64_t now_ns);
  Answer HoldUnlessStuck(uint64_t now_ns);
  void Reply(Answer answer, uint64_t now_ns);
  bool Fits(uint64_t now_ns);
  bool FitsSlice(uint64_t now_ns);
  bool FitsAlone(uint64_t now_ns);
  bool HasRoom() const;
  bool MayBeStuck(bool has_streams) const;
  void Want(uint64_t now_ns);
  void NoLongerHeld(uint64_t now_ns);
  void GiveBack(uint64_t now_ns);
  void Leave(bool tell);
  void Abandon(uint64_t now_ns);
  void AbandonNow(uint64_t now_ns);
  void WakeHeld();
  void AfterCompletion(bool same_word);

  bool AllStand(uint64_t before_ns) const;
  bool CountStanding(uint64_t now_ns);
  void SetAside(uint64_t now_ns);
  void TakeBack(StreamWork& stream, uint64_t now_ns);
  void Return(const ClientWaits* waits, uint64_t now_ns);
  std::vector<std::shared_ptr<StreamWork>> Returning(const ClientWaits* waits) const;
  bool MuchAside() const;
  bool WaitsForValue() const;
  bool MayAddToAside(uint64_t now_ns);
  void ForgetValueWaits(const StreamWork& stream);

  GateActions actions_;  // of the event that is being handled
  SlotImage slot_;

  lease::Grant grant_;
  uint64_t active_ = 0;  // the generation of the grant that the session works under; 0: none
  bool used_ = false;    // work was admitted under that grant
  uint64_t open_budget_ns_ = 0;
  uint64_t kernel_ns_ = 0;  // predicted time of a piece of work, averaged
  Patience patience_;

  bool stale_ = false;  // the token loop is gone
  uint64_t request_ppm_ = 0;
  uint64_t workers_ = 1;
  lease::OwnShare own_share_;

  std::optional<event::Asked> asked_;  // what is being answered
  bool holding_ = false;               // the decoder holds commands back
  uint32_t awaiting_ = 0;              // threads that wait for an admit
  uint64_t held_since_ns_ = 0;         // 0: nothing is held back

  bool link_lost_ = false;
  bool failed_ = false;
  uint64_t failed_busy_since_ns_ = 0;  // the session has failed and has work on the device

  DeviceWork work_;
  std::vector<std::shared_ptr<ClientWaits>> standing_;  // streams that stand in a client wait
  std::vector<std::shared_ptr<StreamWork>> aside_;      // streams with work that is set aside
  Pieces aside_pieces_;                                 // all of that work
  Patience aside_patience_;                             // with streams that wait for a value
  uint64_t standing_looked_ns_ = 0;                     // when an Issued last had it counted
};

}  // namespace rgpu::exec
