// One launch of a graph.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "rgpu_common/native/graph/graph.h"
#include "rgpu_emu/device/graph_layout.h"
#include "rgpu_emu/device/graph_operation.h"

namespace rgpu::emu {

// What launches of an executable run: a snapshot, because the executable may change while a launch
// runs.
struct GraphProgram {
  std::shared_ptr<const GraphLayout> layout;
  std::vector<std::shared_ptr<const GraphOperation>> operations;  // by node; null: does nothing
  std::vector<graph::ConditionalHandle> values;                   // of its conditional nodes
};

// Streams for the lanes behind the first. They are closed when no launch uses them any more.
class GraphLanes {
 public:
  GraphLanes(Context* context, size_t count);
  ~GraphLanes();
  GraphLanes(const GraphLanes&) = delete;
  GraphLanes& operator=(const GraphLanes&) = delete;

  const std::vector<std::shared_ptr<Stream>>& streams() const { return streams_; }

 private:
  std::vector<std::shared_ptr<Stream>> streams_;
};

class GraphRun : public std::enable_shared_from_this<GraphRun> {
 public:
  // Binds the waits for events to the records that are current now.
  GraphRun(std::shared_ptr<const GraphProgram> program, std::shared_ptr<Context> context,
           std::shared_ptr<GraphLanes> lanes);
  // Completes the records of this launch, whether it ran or not.
  ~GraphRun();
  GraphRun(const GraphRun&) = delete;
  GraphRun& operator=(const GraphRun&) = delete;

  // The launch was issued: its records of events are the current ones.
  void PublishRecords();
  // Runs the graph on this thread and those of the lanes, and returns when all of it is done. The
  // result is a sticky error.
  CUresult Run();

 private:
  using Step = GraphLayout::Step;
  struct Record {
    std::shared_ptr<Event> event;
    std::shared_ptr<EventRecord> record;
    std::shared_ptr<Latch> latch;
  };

  const GraphOperation* OperationOf(const Step& step) const;
  bool Stopped() const;
  CUresult AssignValues() const;
  std::vector<uint32_t> StartLanes();
  void RunLane(const std::vector<uint32_t>& steps);
  void AwaitSteps(const Step& step);
  void RunStep(uint32_t number);
  CUresult RunNode(const GraphOperation& operation, const Step& step);
  CUresult RunBody(const GraphLayout& body);
  CUresult RunConditional(const GraphOperation& operation, const Step& step);
  void Fail(const GraphOperation* operation, CUresult result);

  const std::shared_ptr<const GraphProgram> program_;
  const std::shared_ptr<Context> context_;
  const std::shared_ptr<GraphLanes> lanes_;
  std::map<uint32_t, Record> records_;  // by step
  std::map<uint32_t, Fences> waits_;    // by step

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> done_;  // by step
  uint32_t running_ = 0;    // lanes on other threads
  CUresult result_ = CUDA_SUCCESS;
  std::atomic<bool> failed_{false};
};

}  // namespace rgpu::emu
