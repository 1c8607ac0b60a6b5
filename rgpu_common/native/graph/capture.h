// Stream capture: which streams capture into which graph, and what may not happen meanwhile.
//
// Pure: it knows streams, events and threads by number. The model's lock guards it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "rgpu_common/native/graph/graph.h"
#include "rgpu_common/native/graph/host.h"

namespace rgpu::graph {

using ThreadId = uint64_t;

// The state of a stream as cuStreamGetCaptureInfo returns it. `graph` and `before` are set while
// the status is ACTIVE.
struct CaptureInfo {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  uint64_t id = 0;
  std::shared_ptr<Graph> graph;
  std::vector<Edge> before;  // what the next node of the stream will depend on
};

// How a capture ended. `graph` is null if the caller still captures.
struct CaptureEnd {
  CUresult result = CUDA_SUCCESS;
  std::shared_ptr<Graph> graph;
};

class Captures {
 public:
  // True while a stream captures. Read without a lock: while both are false, no call needs this
  // class.
  bool active() const { return active_.load(std::memory_order_acquire); }
  // True while an event was last recorded in a capture.
  bool has_events() const { return has_events_.load(std::memory_order_acquire); }

  CUresult Begin(const StreamSite& stream, ThreadId thread, CUstreamCaptureMode mode,
                 std::shared_ptr<Graph> graph, std::vector<Edge> before);
  CaptureEnd End(const StreamSite& stream, ThreadId thread);
  CUresult Info(const StreamSite& stream, CaptureInfo* info) const;
  // The graph into which the stream captures, or null.
  std::shared_ptr<Graph> GraphOf(const StreamSite& stream) const;
  CUresult UpdateDependencies(const StreamSite& stream, const std::vector<Edge>& before, bool set);

  // Asks what a call that issues work on `stream` must do. CUDA_SUCCESS with `*captures` false: it
  // goes to the device. With true: it becomes a node (Add). Otherwise the call fails (901, 906).
  CUresult Route(const StreamSite& stream, bool* captures);
  // Adds a node behind the stream's last ones. Route said that the stream captures.
  Node* Add(const StreamSite& stream, Params params);

  // cuEventRecord and cuStreamWaitEvent. `*captured`: the call is done, with the result. Otherwise
  // the device does it. `recorded`: the event was recorded on the device before.
  CUresult Record(uint64_t event, const StreamSite& stream, bool* captured);
  CUresult Wait(const StreamSite& stream, uint64_t event, bool recorded, bool* captured);

  // A call that is not allowed while some captures go on: 900, and these become invalid.
  CUresult Unsafe(ThreadId thread, CUstreamCaptureMode mode);
  // A query of or a wait for the stream: 900 if it captures, 906 if it is the legacy stream and
  // would wait for a stream that does.
  CUresult Synchronize(const StreamSite& stream);
  // The same for a whole context.
  CUresult SynchronizeContext(CUcontext context);
  // 907 if the event was last recorded in a capture.
  CUresult UseEvent(uint64_t event);
  void EventGone(uint64_t event);
  // Returns the graph of a capture that nobody can end any more, or null.
  std::shared_ptr<Graph> StreamGone(const StreamSite& stream);
  // Streams of the context that capture: their captures become invalid.
  void ContextGone(CUcontext context);
  // The graph is destroyed, or one of its nodes: what captures into it becomes invalid.
  void GraphChanged(const Graph* graph);

 private:
  struct Capture {
    uint64_t id = 0;
    std::shared_ptr<Graph> graph;
    ThreadId thread = 0;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    uint64_t origin = 0;  // the stream that began it
    bool valid = true;
    bool over = false;
  };
  struct Member {  // a stream that captures
    std::shared_ptr<Capture> capture;
    StreamSite site;
    std::vector<Edge> before;
  };
  struct Recorded {  // an event that was last recorded in a capture
    std::shared_ptr<Capture> capture;
    std::vector<Edge> before;
  };

  Member* Find(const StreamSite& stream);
  const Member* Find(const StreamSite& stream) const;
  // True if work on `stream`, a legacy stream, would wait for a stream that captures.
  bool Implicit(const StreamSite& stream) const;
  CUresult RefuseImplicit(const StreamSite& stream);
  CUresult WaitCaptured(const StreamSite& stream, const Recorded& recorded);
  CUresult WaitUncaptured(const StreamSite& stream, bool recorded, bool* captured);
  void Invalidate(Capture* capture);
  bool Joined(const Capture& capture);
  void Finish(const std::shared_ptr<Capture>& capture);

  std::atomic<bool> active_{false};
  std::atomic<bool> has_events_{false};
  uint64_t next_id_ = 1;
  std::unordered_map<uint64_t, Member> members_;
  std::unordered_map<uint64_t, Recorded> events_;
};

}  // namespace rgpu::graph
