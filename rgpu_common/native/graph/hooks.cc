#include "rgpu_common/native/graph/hooks.h"

#include <atomic>

namespace rgpu::graph {

ThreadId ThisThread() {
  static std::atomic<ThreadId> next{1};
  thread_local const ThreadId id = next.fetch_add(1);
  return id;
}

CUstreamCaptureMode& ThisThreadMode() {
  thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

bool Captured(Model& model, const StreamSite& stream, CUresult* result) {
  Locked locked(model);
  bool captures = false;
  *result = model.captures.Route(stream, &captures);
  return captures || *result != CUDA_SUCCESS;
}

CUresult AddCaptured(Model& model, const StreamSite& stream, Params params) {
  Locked locked(model);
  // Another thread may have ended the capture since.
  bool captures = false;
  const CUresult result = model.captures.Route(stream, &captures);
  if (result != CUDA_SUCCESS) return result;
  if (!captures) return CUDA_ERROR_ILLEGAL_STATE;
  Node* node = model.captures.Add(stream, std::move(params));
  if (const auto* alloc = std::get_if<AllocParams>(&node->params))
    model.memory.Know(alloc->allocation);
  const bool memory = std::holds_alternative<AllocParams>(node->params) ||
                      std::holds_alternative<FreeParams>(node->params);
  node->graph->has_memory_nodes |= memory;
  model.PublishNode(node);
  return CUDA_SUCCESS;
}

bool CaptureRecord(Model& model, CUevent event, const StreamSite& stream, unsigned flags,
                   CUresult* result) {
  const bool external = (flags & CU_EVENT_RECORD_EXTERNAL) != 0;
  if (external) {
    if (Capture(model, stream, result, [&](Params* params) {
          *params = RecordParams{event};
          return CUDA_SUCCESS;
        })) {
      return true;
    }
    *result = CUDA_ERROR_INVALID_VALUE;  // only a stream that captures may do this
    return true;
  }
  if (!model.captures.active() && !model.captures.has_events()) return false;
  Locked locked(model);
  bool captured = false;
  *result = model.captures.Record(Raw(event), stream, &captured);
  return captured || *result != CUDA_SUCCESS;
}

bool CaptureWait(Model& model, const StreamSite& stream, CUevent event, bool recorded,
                 unsigned flags, CUresult* result) {
  const bool external = (flags & CU_EVENT_WAIT_EXTERNAL) != 0;
  if (external) {
    if (Capture(model, stream, result, [&](Params* params) {
          *params = WaitParams{event};
          return CUDA_SUCCESS;
        })) {
      return true;
    }
    *result = CUDA_ERROR_INVALID_VALUE;
    return true;
  }
  if (!model.captures.active() && !model.captures.has_events()) return false;
  Locked locked(model);
  bool captured = false;
  *result = model.captures.Wait(stream, Raw(event), recorded, &captured);
  return captured || *result != CUDA_SUCCESS;
}

CUresult CheckUnsafe(Model& model) {
  if (!model.captures.active()) return CUDA_SUCCESS;
  Locked locked(model);
  return model.captures.Unsafe(ThisThread(), ThisThreadMode());
}

CUresult CheckStreamWait(Model& model, const StreamSite& stream) {
  if (!model.captures.active()) return CUDA_SUCCESS;
  Locked locked(model);
  return model.captures.Synchronize(stream);
}

CUresult CheckContextWait(Model& model, CUcontext context) {
  if (!model.captures.active()) return CUDA_SUCCESS;
  Locked locked(model);
  return model.captures.SynchronizeContext(context);
}

CUresult CheckCaptured(Model& model, CUevent event) {
  if (!model.captures.has_events()) return CUDA_SUCCESS;
  Locked locked(model);
  return model.captures.UseEvent(Raw(event));
}

CUresult CheckEventUse(Model& model, CUevent event) {
  const CUresult captured = CheckCaptured(model, event);
  return captured == CUDA_SUCCESS ? CheckUnsafe(model) : captured;
}

void EventGone(Model& model, CUevent event) {
  if (!model.captures.has_events()) return;
  Locked locked(model);
  model.captures.EventGone(Raw(event));
}

void StreamGone(Model& model, const StreamSite& stream) {
  if (!model.captures.active()) return;
  Locked locked(model);
  model.arrays.erase(stream.id);
  std::shared_ptr<Graph> graph = model.captures.StreamGone(stream);
  if (graph == nullptr || model.graphs.contains(graph->handle) || graph->owner != nullptr) return;
  model.Withdraw(graph.get());
  locked.Drop(std::move(graph));
}

void ContextGone(Model& model, CUcontext context) {
  if (!model.captures.active()) return;
  Locked locked(model);
  model.captures.ContextGone(context);
}

bool IsGraphMemory(Model& model, CUdeviceptr address) {
  const std::lock_guard lock(model.mutex);
  return model.memory.Knows(address);
}

bool FreeGraphMemory(Model& model, CUdeviceptr address, CUresult* result) {
  Locked locked(model);
  std::shared_ptr<Allocation> freed = model.memory.Free(address);
  if (freed == nullptr && !model.memory.Knows(address)) return false;
  *result = freed == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  locked.Drop(std::move(freed));
  return true;
}

}  // namespace rgpu::graph
