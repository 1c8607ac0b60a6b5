// Handlers: launches and uploads of executable graphs. A launch is one piece of device work.
#include <algorithm>

#include "gen/dispatch.gen.h"
#include "rgpu_server/executor/copies.h"
#include "rgpu_server/executor/executor.h"

namespace rgpu::exec {

namespace {

// What the graph names may have gone since it was instantiated.
CUresult CheckUsable(const GraphExec& exec) {
  const auto closing = [](const auto& context) { return context->closing; };
  if (exec.context->closing || std::ranges::any_of(exec.built.contexts, closing)) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  const auto unusable = [](const ExecNode& node) {
    return node.torn || (node.code != nullptr && node.code->gone) ||
           std::ranges::any_of(node.arrays, [](const auto& array) { return array->gone; });
  };
  return std::ranges::any_of(exec.built.nodes, unusable) ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult FindExec(Executor& executor, uint64_t id, std::shared_ptr<GraphExec>* exec) {
  const CUresult result = executor.objects().execs.Share(id, exec);
  return result == CUDA_SUCCESS ? CheckUsable(**exec) : result;
}

CUresult WaitFor(Executor& executor, Stream& stream, const std::shared_ptr<Point>& point) {
  return executor.order().Issue(
      stream, {0, point}, [&](CUstream) { return executor.order().WaitFor(stream, *point, 0); });
}

// An executable graph that replaced another comes behind the launches of that one. A launch comes
// behind the newest one in any stream: the driver orders them, and the gate must know of it.
CUresult ComeBehind(Executor& executor, GraphExec& exec, Stream& stream) {
  for (const auto& point : exec.behind) {
    const CUresult result = WaitFor(executor, stream, point);
    if (result != CUDA_SUCCESS) return result;
  }
  if (exec.last == nullptr || exec.last_in == &stream) return CUDA_SUCCESS;
  stream.frontier.Merge(exec.last->frontier);
  const bool over = exec.last->done || exec.last->pool->abandoned();
  return over ? CUDA_SUCCESS : WaitFor(executor, stream, exec.last);
}

// Keeps a point behind the launch if later launches in other streams must come behind a client wait
// or a delivery with it.
CUresult KeepPlace(Executor& executor, GraphExec& exec, Stream& stream) {
  exec.last = nullptr;
  exec.last_in = &stream;
  if (stream.frontier.Settle() && !stream.behind.AnyLeft()) return CUDA_SUCCESS;
  return executor.order().Record(stream, kInternalEvent, &exec.last);
}

// The client learns that the launch is over by a delivery without bytes behind it.
CUresult AnnounceEnd(Executor& executor, const Command& command, const Target& target) {
  Stream& stream = *target.stream;
  auto delivery = std::make_shared<Delivery>();
  delivery->stream = &stream;
  delivery->opcode = command.header.opcode;
  delivery->seq = command.header.seq;
  delivery->thread = command.header.thread;
  delivery->context = command.header.context;
  std::shared_ptr<Point> point;
  const CUresult result = executor.order().EverythingIn(stream, true, &point);
  if (result != CUDA_SUCCESS) return result;
  if (point == nullptr) {
    FailDelivery(executor, command, CUDA_SUCCESS);
    return CUDA_SUCCESS;
  }
  delivery->chunks.push_back({std::move(point), {}, 0});
  AddDelivery(executor, target, std::move(delivery));
  return CUDA_SUCCESS;
}

// From now on the events stand for their records in this launch.
void RecordEvents(Executor& executor, const GraphExec& exec, Stream& stream) {
  for (const ExecNode& node : exec.built.nodes) {
    if (node.records == nullptr) continue;
    node.records->current = executor.order().PointInWork(stream, node.records->fixed);
    ++node.records->version;
    // Deliveries of the graph may precede the record, and frontiers know only those before the
    // launch.
    if (!exec.built.steps->empty()) executor.OrderIsHidden();
  }
}

// A graph that only waits keeps the device from nobody, as a wait outside a graph does.
const std::shared_ptr<Estimate>* KindOf(const GraphExec& exec) {
  return exec.built.works ? &exec.estimate : nullptr;
}

CUresult IssueWithSteps(Executor& executor, const Command& command, const GraphExec& exec,
                        Stream& stream) {
  // A host function may wait for anything that other threads of the program see.
  executor.OrderIsHidden();
  // Work that was issued before may be running while the graph waits for the client.
  if (stream.issued > stream.marked) {
    const CUresult result = executor.order().MarkNow(stream);
    if (result != CUDA_SUCCESS) return result;
  }
  auto launch = std::make_shared<GraphLaunch>();
  launch->command = command.header;
  launch->enabled = exec.built.enabled;
  launch->steps = exec.built.steps;
  const Work work{0, launch, KindOf(exec), 1};
  return executor.order().Issue(stream, work, [&](CUstream handle) {
    launch->frontier = stream.frontier;
    return executor.order().Waiting(stream, &launch->wait_place, [&] {
      launch->steps->Enter(launch);
      const CUresult taken = executor.driver()->cuGraphLaunch(exec.handle, handle);
      if (taken != CUDA_SUCCESS) launch->steps->Cancel();
      return taken;
    });
  });
}

CUresult Launch(Executor& executor, const Command& command, const rgpuGraphLaunch_Request& request,
                bool* announced) {
  Target target;
  CUresult result = executor.FindCredited(command, request.stream, &target);
  std::shared_ptr<GraphExec> exec;
  if (result == CUDA_SUCCESS) result = FindExec(executor, request.exec, &exec);
  if (result != CUDA_SUCCESS) return result;
  const bool steps = !exec->built.steps->empty();
  // The client must expect what the steps send.
  if (exec->built.steps->asks_client() && request.delivers == 0) return CUDA_ERROR_INVALID_VALUE;
  Stream& stream = *target.stream;
  result = ComeBehind(executor, *exec, stream);
  if (result != CUDA_SUCCESS) return result;
  executor.ledger().CountLaunch();
  if (exec->built.hides_order) executor.OrderIsHidden();
  if (steps) {
    result = IssueWithSteps(executor, command, *exec, stream);
  } else {
    result = executor.order().Issue(stream, {0, exec, KindOf(*exec), 1}, [&](CUstream handle) {
      return executor.driver()->cuGraphLaunch(exec->handle, handle);
    });
  }
  if (result == CUDA_SUCCESS) result = KeepPlace(executor, *exec, stream);
  if (result != CUDA_SUCCESS) return result;
  RecordEvents(executor, *exec, stream);
  if (request.delivers == 0) return CUDA_SUCCESS;
  result = AnnounceEnd(executor, command, target);
  *announced = result == CUDA_SUCCESS;
  return result;
}

}  // namespace

CUresult Run(Executor& executor, const Command& command, const rgpuGraphLaunch_Request& request,
             rgpuGraphLaunch_Reply*) {
  bool announced = false;
  const CUresult result = Launch(executor, command, request, &announced);
  if (request.delivers != 0 && !announced) FailDelivery(executor, command, result);
  return result;
}

CUresult Run(Executor& executor, const Command& command, const rgpuGraphUpload_Request& request,
             rgpuGraphUpload_Reply*) {
  Target target;
  CUresult result = executor.Find(command, request.stream, &target);
  std::shared_ptr<GraphExec> exec;
  if (result == CUDA_SUCCESS) result = FindExec(executor, request.exec, &exec);
  if (result != CUDA_SUCCESS) return result;
  return executor.order().Issue(*target.stream, {0, exec}, [&](CUstream handle) {
    return executor.driver()->cuGraphUpload(exec->handle, handle);
  });
}

}  // namespace rgpu::exec
