// The places of an executable graph at which it waits for its client: host functions, and the host
// sides of its copies. Each is a *step*: a halt in the driver's graph (halts.h). A wait for a value
// in memory has a step before it and one behind it, which tell the gate that the graph stands.
//
// The steps of a graph are in one order (plan.h), and the driver runs one launch of an executable
// graph after the other. So the first step of a launch finds out which launch it belongs to, and
// all steps share the same staging memory.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "rgpu_common/native/wire/frame.h"
#include "rgpu_server/executor/gate/client_waits.h"
#include "rgpu_server/executor/halts.h"
#include "rgpu_server/executor/points.h"
#include "rgpu_server/executor/staging.h"

namespace rgpu::exec {

class Executor;
class GraphSteps;

// One launch of a graph that has steps.
struct GraphLaunch {
  wire::FrameHeader command;                         // the header of rgpuGraphLaunch
  Frontier frontier;                                 // deliveries that precede it in its stream
  WaitPlace wait_place;                              // where its stream waits for the client
  std::shared_ptr<const std::vector<bool>> enabled;  // by node, at the launch
  std::shared_ptr<GraphSteps> steps;
};

struct GraphStep {
  enum class Kind : uint8_t { kCall, kPull, kDeliver, kValueBegin, kValueEnd };
  struct Part {
    uint8_t* data = nullptr;
    uint32_t bytes = 0;
    uint64_t offset = 0;  // among the bytes of all host sides of the graph
  };

  Kind kind = Kind::kCall;
  uint32_t node = 0;
  std::vector<Part> parts;
  GraphSteps* steps = nullptr;
  size_t place = 0;            // in the order
  std::shared_ptr<Halt> halt;  // null: the driver's host function
  bool first = false;
  bool last = false;
};

class GraphSteps {
 public:
  explicit GraphSteps(Executor& executor) : executor_(executor) {}
  ~GraphSteps();
  GraphSteps(const GraphSteps&) = delete;
  GraphSteps& operator=(const GraphSteps&) = delete;

  // Takes staging memory for host sides of at most `most` bytes each, less if there is not enough.
  CUresult Reserve(Staging& staging, uint64_t most);
  const std::vector<Piece>& slots() const { return slots_; }
  // Appends a step to the order, and returns it. It lives as long as this object.
  GraphStep* Add(GraphStep::Kind kind, uint32_t node);
  // All steps are there.
  void Close();
  bool empty() const { return steps_.empty(); }
  // True if the client has a part in one of the steps.
  bool asks_client() const { return asks_client_; }

  // A launch that the driver is about to take; Cancel: it did not take the newest one.
  void Enter(const std::shared_ptr<GraphLaunch>& launch);
  void Cancel();
  // The function of a step's halt.
  static void Run(void* step);

 private:
  void RunStep(const GraphStep& step);
  void Do(const GraphStep& step);
  void Expect(const GraphStep& step);
  void ExpectNext(const GraphStep& step);
  std::shared_ptr<GraphLaunch> LaunchOf(const GraphStep& step);
  void Call(const GraphStep& step, GraphLaunch& launch);
  void Pull(const GraphStep& step, GraphLaunch& launch);
  void Deliver(const GraphStep& step, GraphLaunch& launch);

  Executor& executor_;
  std::vector<Piece> slots_;
  uint64_t reserved_bytes_ = 0;
  std::deque<GraphStep> steps_;  // a deque: the driver has their addresses
  bool asks_client_ = false;

  std::mutex mutex_;
  std::deque<std::shared_ptr<GraphLaunch>> coming_;
  std::shared_ptr<GraphLaunch> current_;
  // Launches whose last step has not run. A stream comes to one step at a time, so the watch of the
  // halts expects one.
  uint64_t launches_ = 0;
};

}  // namespace rgpu::exec
