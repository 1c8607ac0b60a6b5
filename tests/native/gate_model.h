// A small world for GateState: sessions with random programs, the shell of each, a device that runs
// their streams by CUDA's rules, and a token loop.  Time is virtual, and all chance comes from a
// seed.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "rgpu_server/executor/gate/state.h"

namespace rgpu::exec::model {

class World;

// A command of a program, or what the device has of it.
struct Command {
  enum class Kind {
    kKernel,      // uses the device
    kClientWait,  // the stream waits for the client for `ns`
    kRecord,      // an event
    kWaitEvent,   // the stream waits for it
    kWaitValue,   // the stream waits for a value in memory, and then at a halt for its turn
    kWriteValue,  // a kernel that writes it
  };
  Kind kind = Kind::kKernel;
  size_t stream = 0;
  uint64_t ns = 0;
  size_t number = 0;  // of the estimate, event or value
  // Given by the session and the device.
  uint64_t issued = 0;  // in this order
  bool begun = false;
  WaitPlace place = {};
  uint64_t behind = 0;  // kWaitEvent: complete when all before this number in `of` is
  size_t of = 0;
  bool awaits = false;  // the client has answered, or the value is there: waits for its turn

  bool gated() const { return kind == Kind::kKernel || kind == Kind::kWriteValue; }
};

// A worker: a program, the shell around a GateState, and the session's streams on the device.
class Session {
 public:
  Session(World& world, size_t commands);

  const SlotImage& slot() const { return slot_; }
  uint64_t running() const { return running_; }
  bool finished() const;
  // The loop has written to the page.
  void Granted(const lease::Grant& grant);
  // The rules that hold at every moment, and those that hold at the end.
  void Check() const;
  void CheckEnd() const;
  std::string Story() const;

 private:
  struct Recorded {
    size_t of = 0;
    uint64_t behind = 0;
    WaitPlaces places;
  };
  struct Marker {
    size_t stream = 0;
    uint64_t number = 0;
    uint64_t behind = 0;
  };

  void MakeProgram(size_t commands);
  Command MakeCommand();

  // The decoder.
  void Decode();
  bool Admitted(const Command& command);
  void Issue(Command command);
  void Prepare(const Command& command);
  void MarkBefore(size_t stream, const WaitPlaces& next);

  // The shell.
  template <typename Event>
  GateActions Tell(const Event& happened);
  bool Ask(event::Asked asked);
  void Look();
  void Act(const GateActions& actions);
  void WatchGrants();
  void LosesLink();
  void Mark(size_t stream);
  void MarkRest();
  void Poll();

  // The device.
  void Advance();
  bool Ready(const Command& command) const;
  bool Begin(Command& command);
  void End(size_t stream);
  uint64_t CompleteTo(size_t stream) const;
  void GoesOn(size_t stream);
  bool ReturnsToStream(size_t stream);

  World& world_;
  GateState state_;
  SlotImage slot_;
  lease::Grant page_;
  uint64_t wakes_ = 0;  // of the thread that sleeps on the page

  std::deque<Command> program_;
  bool asleep_ = false;  // the decoder holds a command, and nobody has woken it
  uint64_t issued_ = 0;
  std::vector<std::shared_ptr<StreamWork>> streams_;
  std::vector<std::deque<Command>> queues_;  // of the device
  ContextOrder order_;
  std::vector<std::shared_ptr<Estimate>> kernels_;
  std::vector<uint64_t> kernel_ns_;
  std::map<size_t, Recorded> events_;
  std::set<size_t> values_;
  std::deque<Marker> markers_;
  bool polls_ = false;

  uint64_t running_ = 0;
  uint64_t busy_since_ns_ = 0;
  uint64_t busy_ns_ = 0;  // the union of the times in which kernels ran
  uint64_t charged_ns_ = 0;
};

class World {
 public:
  World(uint64_t seed, size_t commands);
  // Until all programs have run to their end.  Fails if that does not happen.
  void Run();

  uint64_t now() const { return now_; }
  uint64_t Random(uint64_t from, uint64_t to) {
    return std::uniform_int_distribution<uint64_t>(from, to)(random_);
  }
  bool Chance(uint64_t in) { return Random(1, in) == 1; }
  void After(uint64_t ns, std::function<void()> function) {
    due_.emplace(now_ + ns, std::move(function));
  }
  // The token loop looks soon, or now.
  void Signal();
  void LoopLooks();

 private:
  void Grant(size_t session);
  void Recall();
  void Write(size_t session, const lease::Grant& grant);
  void Tick();

  std::mt19937_64 random_;
  uint64_t seed_;
  uint64_t now_ = 1'000'000'000;
  std::multimap<uint64_t, std::function<void()>> due_;
  std::vector<std::unique_ptr<Session>> sessions_;
  static constexpr size_t kNobody = SIZE_MAX;
  size_t holder_ = kNobody;
  size_t last_ = 0;
  lease::Grant grant_;  // of the holder
  uint32_t word_ = 0;
};

}  // namespace rgpu::exec::model
