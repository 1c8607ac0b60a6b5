// Stream capture: which streams capture into which graph, and what may not happen meanwhile.
//
// Pure: it knows streams and events by number and threads by number. The model's lock guards it.
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

// The state of a stream as cuStreamGetCaptureInfo returns it.
struct CaptureInfo {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  uint64_t id = 0;
  Graph* graph = nullptr;
  std::vector<Edge> before;  // what the next node of the stream will depend on
};

class Captures {
 public:
  // True while any stream captures or any event was last recorded in a capture. Read without a
  // lock: while it is false, no call needs this class.
  bool active() const { return active_.load(std::memory_order_acquire); }

  CUresult Begin(const StreamSite& stream, ThreadId thread, CUstreamCaptureMode mode,
                 std::shared_ptr<Graph> graph, std::vector<Edge> before);
  // `*graph` is null unless the result is CUDA_SUCCESS. The capture is over in any case, except if
  // the stream or the thread is wrong.
  CUresult End(const StreamSite& stream, ThreadId thread, std::shared_ptr<Graph>* graph);
  CUresult Info(const StreamSite& stream, CaptureInfo* info) const;
  CUresult UpdateDependencies(const StreamSite& stream, const std::vector<Edge>& before, bool set);

  // Asks what a call that issues work on `stream` must do. CUDA_SUCCESS with `*captures` false: it
  // goes to the device. With true: it becomes a node (Add). Otherwise the call fails (901, 906).
  CUresult Route(const StreamSite& stream, bool* captures);
  // Adds a node behind the stream's last ones. Route said that the stream captures.
  CUresult Add(const StreamSite& stream, Params params, Node** node = nullptr);

  // cuEventRecord and cuStreamWaitEvent. `*captured`: the call is done. Otherwise the caller does
  // it on the device, or adds a node if `external`.
  CUresult Record(uint64_t event, const StreamSite& stream, bool* captured);
  CUresult Wait(const StreamSite& stream, uint64_t event, bool recorded, bool* captured);

  // A call that is not allowed while a capture goes on: 900, and these captures become invalid.
  CUresult Unsafe(ThreadId thread, CUstreamCaptureMode mode);
  // A query of or a wait for the stream, which fails if it captures.
  CUresult Synchronize(const StreamSite& stream);
  // The same for a whole context.
  CUresult SynchronizeContext(CUcontext context);
  // 907 if the event was last recorded in a capture.
  CUresult UseEvent(uint64_t event);
  void EventGone(uint64_t event);
  void StreamGone(const StreamSite& stream);
  void ContextGone(CUcontext context);
  // The graph is destroyed, or one of its nodes: what captures into it becomes invalid.
  void GraphGone(const Graph* graph);
  void NodeGone(const Node* node);

 private:
  struct Capture {
    uint64_t id = 0;
    std::shared_ptr<Graph> graph;
    ThreadId thread = 0;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    uint64_t origin = 0;
    bool valid = true;
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
  bool Implicit(const StreamSite& stream) const;
  void InvalidateImplicit(const StreamSite& stream);
  CUresult Fail(Capture* capture, CUresult result);
  bool Joined(const Capture& capture) const;
  void Forget(const Capture* capture);
  void Refresh();

  std::atomic<bool> active_{false};
  uint64_t next_id_ = 1;
  std::unordered_map<uint64_t, Member> members_;
  std::unordered_map<uint64_t, Recorded> events_;
};

}  // namespace rgpu::graph
