// A story: events at the gate of a session, one a line, and what GateState answered.
//
//   ns event arguments > actions, then the fields of the slot that changed
//
// `ns` is the time since the line before. Ages count back from the line's own time. Streams, kinds
// of work and contexts have numbers. `S:N` is wait N of stream S.
//
//   kind K NS_PER_UNIT LEAST TRUST [measured]      a kind of work: no event
//   stream S CONTEXT [legacy] [blocking]           a stream, or streams S-S: no event
//   look FIELDS      enter FIELDS                  the page; fields that are left out are as
//   before:
//       gen= phase= start=AGE slice= word= beat=AGE workers= active= share=
//   ask NS [others=NS] [streams] [in_stream] [returns=S]
//   holding [1]      await_begins      await_ends      tick [streams]      still_runs
//   issue S K UNITS      mark S      complete S MARKER done=AGE [began=AGE] [other_word]
//   awaited MARKER       forget S [other_word]
//   wait_launched S      ordered S S:N...
//   wait_begins S:N      wait_ends S:N      wait_passed S:N      went_on [S] [awaited]
//   link_lost      link_back      failed      stopped
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rgpu_server/executor/gate/state.h"

namespace rgpu::exec {

// The words of a line between its time and its outcome.
class StoryLine {
 public:
  explicit StoryLine(const std::string& text);

  const std::string& name() const { return words_.at(0); }
  uint64_t Number(size_t at) const { return std::stoull(words_.at(at)); }
  double Real(size_t at) const { return std::stod(words_.at(at)); }
  bool Has(const std::string& flag) const;
  // The value of `key=value`; `otherwise` if the line has none.
  uint64_t Value(const std::string& key, uint64_t otherwise = 0) const;
  std::string Text(const std::string& key, const std::string& otherwise) const;
  // The moment whose age the line has; `otherwise` if it has none.
  uint64_t Moment(const std::string& key, uint64_t now_ns, uint64_t otherwise) const;
  size_t size() const { return words_.size(); }
  const std::string& at(size_t at) const { return words_.at(at); }

 private:
  std::vector<std::string> words_;
};

class GateStory {
 public:
  // Does what `line` says, and returns the line with the outcome.
  std::string Play(const std::string& line);

 private:
  using Handlers = std::map<std::string, std::function<void(GateStory&, const StoryLine&)>>;
  static const Handlers& Turns();
  static const Handlers& Work();
  static const Handlers& Waits();

  void Kind(const StoryLine& line);
  void NewStream(const StoryLine& line);
  void Ask(const StoryLine& line);
  void Enter(const StoryLine& line);
  void Look(const StoryLine& line);
  void Issue(const StoryLine& line);
  void Complete(const StoryLine& line);
  void Forget(const StoryLine& line);
  void Ordered(const StoryLine& line);
  void WentOn(const StoryLine& line);

  template <typename Event>
  void Tell(const Event& happened) {
    actions_ = state_.Handle(happened, now_);
  }
  void ReadGrant(const StoryLine& line);
  StreamWork& Stream(uint64_t id) { return *streams_.at(id).work; }
  ContextOrder& Order(uint64_t id) { return orders_[streams_.at(id).context]; }
  WaitPlace Place(const std::string& text);
  std::string Outcome();
  std::string Actions() const;
  std::string SlotChanges();

  struct NumberedStream {
    std::shared_ptr<StreamWork> work;
    uint64_t context = 0;
  };

  uint64_t now_ = 0;
  GateState state_;
  GateActions actions_;  // of the last line
  SlotImage slot_;       // after it
  event::Looked page_;
  std::map<uint64_t, std::shared_ptr<Estimate>> kinds_;
  std::map<uint64_t, NumberedStream> streams_;
  std::map<uint64_t, ContextOrder> orders_;
};

}  // namespace rgpu::exec
