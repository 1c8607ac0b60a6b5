// Recorded stories: what happened at the gate of real sessions, and what the gate did.
//
// The stories in gate_stories/ were recorded from the gate as it was before GateState: from the
// sessions of tests/quota, by a worker that wrote down every event under the executor's lock.  A
// story is a text.  Numbers are decimal; times are in ns; streams, kinds of work, contexts and
// markers are numbered in the order in which they came.
//
//   @ns                           time passes; what follows up to the next @ happens at once
//   K kind ns_per_unit least trust measured      S stream context legacy blocking
//   A ns others has_streams in_stream            a command asks
//   R others has_streams stream                  a host function asks, whose client wait has ended
//   E generation phase start slice word          the page after the slot said that it is active
//   L generation phase start slice word heartbeat workers active request      the page
//   H holding   B   b                            held; a thread begins, ends to wait
//   I stream kind units   M stream               issued; marked
//   C stream marker began done found same_word   completed      F stream same_word   forgotten
//   w stream   o stream (stream wait)...         client wait launched; ordered behind waits
//   + stream wait   - stream wait   p stream wait    the wait begins, ends, is passed
//   l   k   X   Z                                link lost, back; failed; stopped
//   r   T has_streams                            still runs; a tick
//   = answer signal wake_held charged            what the gate did; no line: "- 0 0 0"
//   s active near_end spent wants kernel_us in_flight held_back drained       the slot, if changed
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "rgpu_server/executor/gate/state.h"
#include "tests/native/testing.h"

namespace rgpu::exec {
namespace {

class Story {
 public:
  explicit Story(const std::filesystem::path& path) : name_(path.filename()) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) lines_.push_back(line);
    CHECK(!lines_.empty());
  }

  void Replay() {
    for (at_ = 0; at_ < lines_.size(); ++at_) {
      words_.clear();
      words_.str(lines_[at_].substr(1));
      Line(lines_[at_][0]);
    }
    Compare();
  }

 private:
  struct Recorded {
    std::string answer = "-";
    uint64_t signal = 0;
    uint64_t wake_held = 0;
    uint64_t charged_ns = 0;
  };

  void Line(char kind) {
    switch (kind) {
      case '@':
        Compare();
        now_ += Next();
        break;
      case '=':
        words_ >> recorded_.answer;
        recorded_.signal = Next();
        recorded_.wake_held = Next();
        recorded_.charged_ns = Next();
        break;
      case 's':
        slot_.active_gen = Next();
        slot_.near_end_gen = Next();
        slot_.spent_gen = Next();
        slot_.wants = Next() != 0;
        slot_.kernel_us = static_cast<uint32_t>(Next());
        slot_.in_flight_ns = Next();
        slot_.held_back_ns = Next();
        slot_.drained_ns = Next();
        break;
      default:
        if (!Turn(kind) && !Work(kind) && !Wait(kind)) Differs("a line that is no event");
    }
  }

  bool Turn(char kind) {
    switch (kind) {
      case 'A': {
        event::Asked asked{.ns = Next(), .others_ns = Next(), .has_streams = Next() != 0};
        asked.in_stream = Next() != 0;
        Ask(asked);
        return true;
      }
      case 'R': {
        event::Asked asked{.others_ns = Next(), .has_streams = Next() != 0, .in_stream = true};
        asked.returns = Stream(Next()).waits.get();
        Ask(asked);
        return true;
      }
      case 'L': {
        event::Looked looked{.grant = Grant(), .heartbeat_ns = Next()};
        looked.workers = static_cast<uint32_t>(Next());
        looked.active_workers = static_cast<uint32_t>(Next());
        looked.request_ppm = Next();
        return Tell(looked);
      }
      case 'H':
        return Tell(event::Holding{Next() != 0});
      case 'B':
        return Tell(event::AwaitBegan{});
      case 'b':
        return Tell(event::AwaitEnded{});
      case 'l':
        return Tell(event::LinkLost{});
      case 'k':
        return Tell(event::LinkBack{});
      case 'X':
        return Tell(event::Failed{});
      case 'Z':
        return Tell(event::Stopped{});
      case 'r':
        return Tell(event::StillRuns{});
      case 'T':
        return Tell(event::Ticked{Next() != 0});
      default:
        return false;
    }
  }

  bool Work(char kind) {
    switch (kind) {
      case 'K': {
        const uint64_t id = Next();
        const double ns_per_unit = NextReal();
        const uint64_t least = Next();
        auto estimate = std::make_shared<Estimate>(ns_per_unit, least, NextReal());
        estimate->measured = Next() != 0;
        kinds_[id] = std::move(estimate);
        return true;
      }
      case 'S': {
        auto stream = std::make_shared<StreamWork>();
        const uint64_t id = Next();
        contexts_of_[stream.get()] = Next();
        stream->legacy = Next() != 0;
        stream->blocking = Next() != 0;
        streams_[id] = std::move(stream);
        return true;
      }
      case 'I': {
        StreamWork& stream = Stream(Next());
        const auto& estimate = kinds_.at(Next());
        return Tell(event::Issued{stream, Order(stream), estimate, Next()});
      }
      case 'M':
        return Tell(event::Marked{Stream(Next())});
      case 'C': {
        event::Completed completed{Stream(Next()), Next(), Next(), Next(), Next(), Next() != 0};
        Tell(completed);
        const bool looks = at_ + 1 < lines_.size() && lines_[at_ + 1][0] == 'L';
        if (state_.failed() || last_.look == looks) return true;
        Differs("whether the page was looked at");
      }
      case 'F': {
        StreamWork& stream = Stream(Next());
        return Tell(event::Forgotten{stream, Next() != 0});
      }
      default:
        return false;
    }
  }

  bool Wait(char kind) {
    switch (kind) {
      case 'w': {
        StreamWork& stream = Stream(Next());
        return Tell(event::WaitLaunched{stream, Order(stream)});
      }
      case 'o': {
        StreamWork& stream = Stream(Next());
        WaitPlaces behind;
        for (uint64_t of = 0; words_ >> of;) behind.Add({Stream(of).waits, Next()});
        return Tell(event::OrderedBehind{stream, Order(stream), behind});
      }
      case '+':
        return Tell(event::WaitBegan{Place()});
      case '-':
        return Tell(event::WaitEnded{Place()});
      case 'p':
        return Tell(event::WaitPassed{Place()});
      default:
        return false;
    }
  }

  void Ask(const event::Asked& asked) {
    Tell(asked);
    const bool enters = at_ + 1 < lines_.size() && lines_[at_ + 1][0] == 'E';
    if (last_.enter != enters) Differs("whether the grant was entered");
    if (enters) {
      words_.clear();
      words_.str(lines_[++at_].substr(1));
      Tell(event::Entered{Grant()});
    }
    answer_ = last_.admit ? "1" : "0";
  }

  void Compare() {
    if (answer_ != recorded_.answer) Differs("the answer");
    if (all_.signal != (recorded_.signal != 0)) Differs("the signal to the loop");
    if (all_.wake_held != (recorded_.wake_held != 0)) Differs("the wake of what is held");
    if (all_.charged_ns != recorded_.charged_ns) Differs("the charge");
    if (!(state_.slot() == slot_)) Differs("the slot");
    all_ = {};
    recorded_ = {};
    answer_ = "-";
  }

  template <typename Event>
  bool Tell(const Event& happened) {
    last_ = state_.Handle(happened, now_);
    all_ |= last_;
    return true;
  }

  lease::Grant Grant() {
    lease::Grant grant;
    grant.generation = Next();
    grant.phase = static_cast<lease::Phase>(Next());
    grant.start_ns = Next();
    grant.slice_ns = Next();
    grant.futex = static_cast<uint32_t>(Next());
    return grant;
  }
  WaitPlace Place() {
    StreamWork& stream = Stream(Next());
    return {stream.waits, Next()};
  }
  StreamWork& Stream(uint64_t id) { return *streams_.at(id); }
  ContextOrder& Order(const StreamWork& stream) { return orders_[contexts_of_.at(&stream)]; }
  uint64_t Next() {
    uint64_t value = 0;
    if (!(words_ >> value)) Differs("a line with a number less than it has");
    return value;
  }
  double NextReal() {
    double value = 0;
    if (!(words_ >> value)) Differs("a line with a number less than it has");
    return value;
  }
  [[noreturn]] void Differs(const std::string& what) {
    std::ostringstream text;
    const SlotImage& slot = state_.slot();
    text << name_ << ": " << what << " differs before line " << at_ + 1 << "; now: answer "
         << answer_ << ", signal " << all_.signal << ", wake " << all_.wake_held << ", charged "
         << all_.charged_ns << ", slot " << slot.active_gen << " " << slot.near_end_gen << " "
         << slot.spent_gen << " " << slot.wants << " " << slot.kernel_us << " " << slot.in_flight_ns
         << " " << slot.held_back_ns << " " << slot.drained_ns;
    testing::Fail(__FILE__, __LINE__, text.str());
  }

  std::string name_;
  std::vector<std::string> lines_;
  size_t at_ = 0;
  std::istringstream words_;
  uint64_t now_ = 0;
  GateState state_;
  GateActions last_;
  GateActions all_;  // of one moment
  std::string answer_ = "-";
  Recorded recorded_;
  SlotImage slot_;
  std::map<uint64_t, std::shared_ptr<Estimate>> kinds_;
  std::map<uint64_t, std::shared_ptr<StreamWork>> streams_;
  std::map<const StreamWork*, uint64_t> contexts_of_;
  std::map<uint64_t, ContextOrder> orders_;
};

TEST(gate, recorded_stories_go_as_they_went) {
  int stories = 0;
  for (const auto& entry : std::filesystem::directory_iterator(RGPU_GATE_STORIES)) {
    Story(entry.path()).Replay();
    ++stories;
  }
  CHECK(stories > 0);
}

}  // namespace
}  // namespace rgpu::exec
