#include "rgpu_common/native/graph/capture.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace rgpu::graph {
namespace {

void Merge(std::vector<Edge>* into, const std::vector<Edge>& more) {
  for (const Edge& edge : more) {
    const bool known = std::any_of(into->begin(), into->end(), [&](const Edge& old) {
      return old.node == edge.node && SameEdge(old.data, edge.data);
    });
    if (!known) into->push_back(edge);
  }
}

// Adds the nodes of `edges` and all nodes before them.
void AddAncestors(const std::vector<Edge>& edges, std::unordered_set<const Node*>* out) {
  std::vector<const Node*> open;
  for (const Edge& edge : edges) open.push_back(edge.node);
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    if (!out->insert(node).second) continue;
    for (const Edge& edge : node->before) open.push_back(edge.node);
  }
}

}  // namespace

Captures::Member* Captures::Find(const StreamSite& stream) {
  const auto it = members_.find(stream.id);
  return it == members_.end() ? nullptr : &it->second;
}

const Captures::Member* Captures::Find(const StreamSite& stream) const {
  const auto it = members_.find(stream.id);
  return it == members_.end() ? nullptr : &it->second;
}

bool Captures::Implicit(const StreamSite& stream) const {
  if (stream.kind != StreamKind::kLegacy) return false;
  return std::any_of(members_.begin(), members_.end(), [&](const auto& entry) {
    const StreamSite& site = entry.second.site;
    return site.kind == StreamKind::kBlocking && site.context == stream.context;
  });
}

CUresult Captures::RefuseImplicit(const StreamSite& stream) {
  for (auto& [id, member] : members_) {
    const StreamSite& site = member.site;
    if (site.kind == StreamKind::kBlocking && site.context == stream.context)
      Invalidate(member.capture.get());
  }
  return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

// The nodes that streams and events depend on may be gone soon, so nobody keeps them.
void Captures::Invalidate(Capture* capture) {
  capture->valid = false;
  for (auto& [id, member] : members_) {
    if (member.capture.get() == capture) member.before.clear();
  }
  for (auto& [id, recorded] : events_) {
    if (recorded.capture.get() == capture) recorded.before.clear();
  }
}

void Captures::Finish(const std::shared_ptr<Capture>& capture) {
  Invalidate(capture.get());
  capture->over = true;
  capture->graph.reset();
  std::erase_if(members_, [&](const auto& entry) { return entry.second.capture == capture; });
  active_.store(!members_.empty(), std::memory_order_release);
}

CUresult Captures::Begin(const StreamSite& stream, ThreadId thread, CUstreamCaptureMode mode,
                         std::shared_ptr<Graph> graph, std::vector<Edge> before) {
  if (stream.kind == StreamKind::kLegacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (Find(stream) != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  auto capture = std::make_shared<Capture>();
  capture->id = next_id_++;
  capture->graph = std::move(graph);
  capture->thread = thread;
  capture->mode = mode;
  capture->origin = stream.id;
  members_[stream.id] = {std::move(capture), stream, std::move(before)};
  active_.store(true, std::memory_order_release);
  return CUDA_SUCCESS;
}

// Every stream that joined must have been joined to the origin again: what its next node would
// depend on comes before the origin's.
bool Captures::Joined(const Capture& capture) {
  std::unordered_set<const Node*> joined;
  AddAncestors(members_[capture.origin].before, &joined);
  for (const auto& [id, member] : members_) {
    if (member.capture.get() != &capture) continue;
    for (const Edge& edge : member.before) {
      if (!joined.contains(edge.node)) return false;
    }
  }
  return true;
}

CaptureEnd Captures::End(const StreamSite& stream, ThreadId thread) {
  const Member* member = Find(stream);
  if (member == nullptr) return {CUDA_ERROR_ILLEGAL_STATE, nullptr};
  const std::shared_ptr<Capture> capture = member->capture;
  if (capture->origin != stream.id) {
    Invalidate(capture.get());
    return {CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, nullptr};
  }
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != thread)
    return {CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, nullptr};
  CaptureEnd out{CUDA_SUCCESS, capture->graph};
  if (!capture->valid) {
    out.result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  } else if (!Joined(*capture)) {
    out.result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  }
  Finish(capture);
  return out;
}

CUresult Captures::Info(const StreamSite& stream, CaptureInfo* info) const {
  const Member* member = Find(stream);
  *info = {};
  if (member == nullptr)
    return Implicit(stream) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
  info->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  if (!member->capture->valid) return CUDA_SUCCESS;
  info->status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  info->id = member->capture->id;
  info->graph = member->capture->graph;
  info->before = member->before;
  return CUDA_SUCCESS;
}

std::shared_ptr<Graph> Captures::GraphOf(const StreamSite& stream) const {
  const Member* member = Find(stream);
  return member == nullptr ? nullptr : member->capture->graph;
}

CUresult Captures::UpdateDependencies(const StreamSite& stream, const std::vector<Edge>& before,
                                      bool set) {
  Member* member = Find(stream);
  if (member == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (!member->capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (set) member->before.clear();
  Merge(&member->before, before);
  return CUDA_SUCCESS;
}

CUresult Captures::Route(const StreamSite& stream, bool* captures) {
  const Member* member = Find(stream);
  *captures = member != nullptr;
  if (member == nullptr) return Implicit(stream) ? RefuseImplicit(stream) : CUDA_SUCCESS;
  return member->capture->valid ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

Node* Captures::Add(const StreamSite& stream, Params params) {
  Member& member = members_.at(stream.id);
  Node* node = member.capture->graph->Add(std::move(params), member.before);
  member.before = {{node, {}}};
  return node;
}

CUresult Captures::Record(uint64_t event, const StreamSite& stream, bool* captured) {
  const CUresult result = Route(stream, captured);
  if (result != CUDA_SUCCESS) return result;
  if (*captured) {
    const Member& member = members_.at(stream.id);
    events_[event] = {member.capture, member.before};
    has_events_.store(true, std::memory_order_release);
  } else {
    EventGone(event);
  }
  return CUDA_SUCCESS;
}

// A stream that captures cannot depend on work outside of the capture. An event that was never
// recorded is no work.
CUresult Captures::WaitUncaptured(const StreamSite& stream, bool recorded, bool* captured) {
  const CUresult result = Route(stream, captured);
  if (result != CUDA_SUCCESS || !*captured || !recorded) return result;
  Invalidate(members_.at(stream.id).capture.get());
  return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
}

CUresult Captures::WaitCaptured(const StreamSite& stream, const Recorded& recorded) {
  Capture* capture = recorded.capture.get();
  if (!capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  Member* member = Find(stream);
  if (member == nullptr) {
    if (stream.kind == StreamKind::kLegacy) {
      Invalidate(capture);
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    members_[stream.id] = {recorded.capture, stream, recorded.before};
    return CUDA_SUCCESS;
  }
  if (!member->capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (member->capture.get() != capture) {
    Invalidate(capture);
    Invalidate(member->capture.get());
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  Merge(&member->before, recorded.before);
  return CUDA_SUCCESS;
}

CUresult Captures::Wait(const StreamSite& stream, uint64_t event, bool recorded, bool* captured) {
  const auto it = events_.find(event);
  if (it == events_.end()) return WaitUncaptured(stream, recorded, captured);
  *captured = true;
  if (!it->second.capture->over) return WaitCaptured(stream, it->second);
  // The capture has ended: its graph is no work of a stream.
  if (Find(stream) == nullptr) return CUDA_ERROR_CAPTURED_EVENT;
  return WaitUncaptured(stream, true, captured);
}

CUresult Captures::Unsafe(ThreadId thread, CUstreamCaptureMode mode) {
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  std::vector<Capture*> forbidding;
  for (auto& [id, member] : members_) {
    Capture* capture = member.capture.get();
    const bool own = capture->thread == thread && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool other =
        mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (own || other) forbidding.push_back(capture);
  }
  for (Capture* capture : forbidding) Invalidate(capture);
  return forbidding.empty() ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult Captures::Synchronize(const StreamSite& stream) {
  const Member* member = Find(stream);
  if (member == nullptr) return Implicit(stream) ? RefuseImplicit(stream) : CUDA_SUCCESS;
  Invalidate(member->capture.get());
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult Captures::SynchronizeContext(CUcontext context) {
  bool captures = false;
  for (auto& [id, member] : members_) {
    if (member.site.context != context) continue;
    captures = true;
    Invalidate(member.capture.get());
  }
  return captures ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult Captures::UseEvent(uint64_t event) {
  const auto it = events_.find(event);
  if (it == events_.end()) return CUDA_SUCCESS;
  Invalidate(it->second.capture.get());
  return CUDA_ERROR_CAPTURED_EVENT;
}

void Captures::EventGone(uint64_t event) {
  events_.erase(event);
  has_events_.store(!events_.empty(), std::memory_order_release);
}

std::shared_ptr<Graph> Captures::StreamGone(const StreamSite& stream) {
  const Member* member = Find(stream);
  if (member == nullptr) return nullptr;
  const std::shared_ptr<Capture> capture = member->capture;
  Invalidate(capture.get());
  std::shared_ptr<Graph> graph;
  if (capture->origin == stream.id) {
    graph = capture->graph;
    Finish(capture);
  } else {
    members_.erase(stream.id);
  }
  return graph;
}

void Captures::ContextGone(CUcontext context) { SynchronizeContext(context); }

void Captures::GraphChanged(const Graph* graph) {
  for (auto& [id, member] : members_) {
    if (member.capture->graph.get() == graph) Invalidate(member.capture.get());
  }
}

}  // namespace rgpu::graph
