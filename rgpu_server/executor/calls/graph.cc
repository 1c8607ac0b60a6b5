// Handlers: graphs. The client has sent the whole definition as an image; an executable graph is
// built from it with the driver's explicit API.
#include <algorithm>
#include <utility>

#include "gen/dispatch.gen.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/graphs/build.h"
#include "rgpu_server/executor/images.h"
#include "rgpu_server/executor/loads.h"

namespace rgpu::exec {

namespace {

constexpr uint32_t kNoNode = UINT32_MAX;
// The other flags of cuGraphInstantiate concern allocation nodes and uploads, which the client
// sees to, and launches by the device.
constexpr uint64_t kDriverFlags = CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

// What a definition's image holds. Kernel parameters point into the image.
struct Received {
  std::shared_ptr<Image> image;
  wire::GraphDefinition definition;
};

CUresult Receive(Executor& executor, uint64_t image, Received* received) {
  const CUresult result = TakeImage(executor, image, &received->image);
  if (result != CUDA_SUCCESS) return result == kDropped ? CUDA_ERROR_OUT_OF_MEMORY : result;
  const std::vector<uint8_t>& bytes = received->image->bytes;
  const uint64_t total = received->image->total;
  const bool good = total <= wire::kMaxDefinitionBytes &&
                    wire::Decode(wire::Bytes(bytes.data(), total), &received->definition);
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Builds the definition, after the code of its kernels is loaded.
CUresult Build(Executor& executor, const std::shared_ptr<Context>& context,
               const Received& received, CUgraph into, BuiltGraph* built, uint32_t* failed) {
  CUresult result = LoadKernels(executor, context, received.definition);
  if (result == CUDA_SUCCESS && context->closing) result = CUDA_ERROR_INVALID_CONTEXT;
  if (result == CUDA_SUCCESS) result = executor.MakeCurrent(*context);
  if (result == CUDA_SUCCESS) {
    result = BuildGraph(executor, context, received.definition, into, built);
  }
  *failed = built->failed.value_or(kNoNode);
  return result;
}

// Instantiates `exec->built`, and charges the lease for the device memory that the driver takes.
CUresult Instantiate(Executor& executor, GraphExec* exec) {
  const Driver& driver = executor.driver();
  Charged charged;
  CUresult result = LoadCharged(
      executor, 0,
      [&] {
        return driver->cuGraphInstantiateWithFlags(&exec->handle, exec->built.graph,
                                                   exec->flags & kDriverFlags);
      },
      [&] { driver->cuGraphExecDestroy(std::exchange(exec->handle, nullptr)); }, &charged);
  exec->charged_bytes = charged.bytes;
  for (size_t i = 0; i < exec->built.nodes.size() && result == CUDA_SUCCESS; ++i) {
    const ExecNode& node = exec->built.nodes[i];
    if ((*exec->built.enabled)[i]) continue;
    if (node.own != nullptr) result = driver->cuGraphNodeSetEnabled(exec->handle, node.own, 0);
    for (const CUgraphNode copy : node.copies) {
      if (result == CUDA_SUCCESS) result = driver->cuGraphNodeSetEnabled(exec->handle, copy, 0);
    }
  }
  return result;
}

// Destroys what the driver has of `exec` when the work that was issued so far is complete.
void Retire(Executor& executor, const std::shared_ptr<GraphExec>& exec,
            std::vector<std::shared_ptr<Point>> fences) {
  const Driver& driver = executor.driver();
  executor.reaper().AddBehind(
      std::move(fences), exec->context,
      [&driver, exec] {
        driver->cuGraphExecDestroy(exec->handle);
        driver->cuGraphDestroy(exec->built.graph);
      },
      [&executor, exec] {
        executor.ledger().Release(std::exchange(exec->charged_bytes, 0));
        exec->built = {};
      },
      exec->charged_bytes);
}

std::vector<std::shared_ptr<Point>> Everything(Executor& executor) {
  std::vector<std::shared_ptr<Point>> points;
  executor.EverythingInAll(true, &points);
  return points;
}

// The driver's graph of the conditional handles, unless an executable graph has it already. What it
// takes of the session's nodes goes with it.
CUgraph TakeShell(Executor& executor, uint64_t id, const std::shared_ptr<Context>& context,
                  BuiltGraph* built) {
  GraphShell* shell = nullptr;
  if (id == 0 || executor.objects().graphs.Find(id, &shell) != CUDA_SUCCESS) return nullptr;
  if (shell->context != context || shell->handle == nullptr) return nullptr;
  built->budget = std::move(shell->budget);
  built->values = std::move(shell->values);
  return std::exchange(shell->handle, nullptr);
}

CUresult MakeExec(Executor& executor, const Received& received, CUgraph shell, GraphExec* exec,
                  uint32_t* failed) {
  CUresult result = Build(executor, exec->context, received, shell, &exec->built, failed);
  if (result == CUDA_SUCCESS) result = Instantiate(executor, exec);
  if (result == CUDA_SUCCESS && exec->context->closing) result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (result == CUDA_SUCCESS) {
    // Long enough that the first launch is measured by itself, like that of a kernel.
    exec->estimate = std::make_shared<Estimate>(static_cast<double>(exec->built.predicted_ns + 1));
    return CUDA_SUCCESS;
  }
  const Driver& driver = executor.driver();
  if (exec->handle != nullptr) driver->cuGraphExecDestroy(exec->handle);
  CUgraph graph = exec->built.graph != nullptr ? exec->built.graph : shell;
  if (graph != nullptr) driver->cuGraphDestroy(graph);
  executor.ledger().Release(exec->charged_bytes);
  return result;
}

}  // namespace

CUresult Run(Executor& executor, const Command& command,
             const rgpuGraphInstantiate_Request& request, rgpuGraphInstantiate_Reply* reply) {
  reply->node = kNoNode;
  auto exec = std::make_shared<GraphExec>();
  CUresult result = executor.Enter(command, &exec->context);
  Received received;
  if (const CUresult arrived = Receive(executor, request.image, &received);
      result == CUDA_SUCCESS) {
    result = arrived;
  }
  if (result != CUDA_SUCCESS) return result;
  Table<GraphExec>::Reservation place(executor.objects().execs, request.exec);
  if (place.result() != CUDA_SUCCESS) return place.result();
  ReturnRoom(executor);
  if (!ExecPlace::AnyLeft()) return CUDA_ERROR_OUT_OF_MEMORY;
  exec->flags = request.flags;
  const CUgraph shell = TakeShell(executor, request.graph, exec->context, &exec->built);
  result = MakeExec(executor, received, shell, exec.get(), &reply->node);
  if (result == CUDA_SUCCESS) place.Add(std::move(exec));
  return result;
}

namespace {

bool SameKinds(const BuiltGraph& before, const BuiltGraph& after) {
  if (before.nodes.size() != after.nodes.size()) return false;
  for (size_t i = 0; i < before.nodes.size(); ++i) {
    if (before.nodes[i].kind != after.nodes[i].kind) return false;
  }
  return true;
}

// True if the driver's nodes of `before` may stand for those of `after`: the driver pairs them in
// the order in which they were added, whatever their numbers are.
bool SameOrder(const BuiltGraph& before, const BuiltGraph& after) {
  const auto same = [](const ExecNode& one, const ExecNode& other) {
    return (one.own == nullptr) == (other.own == nullptr) &&
           one.copies.size() == other.copies.size();
  };
  return before.plans == after.plans && std::ranges::equal(before.nodes, after.nodes, same);
}

// The driver's executable graph has the parameters of `after` now. Its nodes are still named by
// those of the graph with which it was instantiated.
void Adopt(Executor& executor, BuiltGraph* before, BuiltGraph after) {
  executor.driver()->cuGraphDestroy(after.graph);
  after.graph = before->graph;
  after.values = std::move(before->values);
  for (size_t i = 0; i < after.nodes.size(); ++i) {
    after.nodes[i].own = before->nodes[i].own;
    after.nodes[i].copies = std::move(before->nodes[i].copies);
  }
  *before = std::move(after);
}

// Other threads of the client may have destroyed the executable graph or its context while the lock
// was released.
CUresult CheckThere(Executor& executor, uint64_t id, const GraphExec& exec) {
  GraphExec* found = nullptr;
  const CUresult result = executor.objects().execs.Find(id, &found);
  if (result != CUDA_SUCCESS || found != &exec) return CUDA_ERROR_INVALID_HANDLE;
  return exec.context->closing ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

// Puts a new executable graph in the place of one that the driver cannot update.
CUresult Replace(Executor& executor, uint64_t id, const std::shared_ptr<GraphExec>& exec,
                 BuiltGraph after) {
  if (!ExecPlace::AnyLeft()) {
    executor.driver()->cuGraphDestroy(after.graph);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  GraphExec fresh;
  fresh.context = exec->context;
  fresh.flags = exec->flags;
  fresh.built = std::move(after);
  CUresult result = Instantiate(executor, &fresh);
  if (result == CUDA_SUCCESS) result = CheckThere(executor, id, *exec);
  if (result != CUDA_SUCCESS) {
    if (fresh.handle != nullptr) executor.driver()->cuGraphExecDestroy(fresh.handle);
    executor.driver()->cuGraphDestroy(fresh.built.graph);
    executor.ledger().Release(fresh.charged_bytes);
    return result;
  }
  auto old = std::make_shared<GraphExec>(std::move(*exec));
  *exec = std::move(fresh);
  exec->estimate = old->estimate;
  exec->behind = Everything(executor);
  Retire(executor, old, exec->behind);
  return CUDA_SUCCESS;
}

bool HasConditional(const wire::GraphDefinition& definition) {
  bool found = false;
  ForEachNode(definition, [&](const wire::GraphNode& node) {
    found = found || std::holds_alternative<wire::GraphConditional>(node.parameters);
  });
  return found;
}

// Node by node: conditional handles belong to the graph that exists.
CUresult UpdateNodes(Executor& executor, uint64_t id, const std::shared_ptr<GraphExec>& exec,
                     const Received& received, rgpuGraphUpdate_Reply* reply) {
  CUresult result = LoadKernels(executor, exec->context, received.definition);
  if (result == CUDA_SUCCESS) result = CheckThere(executor, id, *exec);
  if (result == CUDA_SUCCESS) result = executor.MakeCurrent(*exec->context);
  ForEachNode(received.definition, [&](const wire::GraphNode& node) {
    const auto& parameters = node.parameters;
    const bool fixed = std::holds_alternative<wire::GraphEmpty>(parameters) ||
                       std::holds_alternative<wire::GraphHostFunction>(parameters) ||
                       std::holds_alternative<wire::GraphChild>(parameters) ||
                       std::holds_alternative<wire::GraphConditional>(parameters);
    if (fixed || result != CUDA_SUCCESS) return;
    result = SetNode(executor, *exec, node);
    if (result != CUDA_SUCCESS) reply->node = node.number;
  });
  return result;
}

// Other threads may have changed the executable graph while the lock was released.
CUresult CheckAlike(Executor& executor, uint64_t id, const GraphExec& exec,
                    const BuiltGraph& after) {
  const CUresult result = CheckThere(executor, id, exec);
  if (result != CUDA_SUCCESS) return result;
  return SameKinds(exec.built, after) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult Run(Executor& executor, const Command&, const rgpuGraphUpdate_Request& request,
             rgpuGraphUpdate_Reply* reply) {
  reply->node = kNoNode;
  Received received;
  CUresult result = Receive(executor, request.image, &received);
  std::shared_ptr<GraphExec> exec;
  if (result == CUDA_SUCCESS) result = executor.objects().execs.Share(request.exec, &exec);
  if (result != CUDA_SUCCESS) return result;
  if (HasConditional(received.definition)) {
    return UpdateNodes(executor, request.exec, exec, received, reply);
  }
  ReturnRoom(executor);
  BuiltGraph after;
  result = Build(executor, exec->context, received, nullptr, &after, &reply->node);
  if (result != CUDA_SUCCESS) return result;
  const Driver& driver = executor.driver();
  result = CheckAlike(executor, request.exec, *exec, after);
  if (result != CUDA_SUCCESS) {
    driver->cuGraphDestroy(after.graph);
    return result;
  }
  CUgraphExecUpdateResultInfo info{};
  if (!SameOrder(exec->built, after) ||
      driver->cuGraphExecUpdate_v2(exec->handle, after.graph, &info) != CUDA_SUCCESS) {
    return Replace(executor, request.exec, exec, std::move(after));
  }
  Adopt(executor, &exec->built, std::move(after));
  return CUDA_SUCCESS;
}

// The driver's graph of the handles is made an executable graph of its own: an update would keep
// the graph, and one more with every update.
CUresult Run(Executor& executor, const Command&, const rgpuGraphUpdateWith_Request& request,
             rgpuGraphUpdateWith_Reply* reply) {
  reply->node = kNoNode;
  Received received;
  CUresult result = Receive(executor, request.image, &received);
  std::shared_ptr<GraphExec> exec;
  if (result == CUDA_SUCCESS) result = executor.objects().execs.Share(request.exec, &exec);
  if (result != CUDA_SUCCESS) return result;
  ReturnRoom(executor);
  BuiltGraph after;
  const CUgraph shell = TakeShell(executor, request.graph, exec->context, &after);
  if (shell == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  result = Build(executor, exec->context, received, shell, &after, &reply->node);
  if (result == CUDA_SUCCESS) result = CheckAlike(executor, request.exec, *exec, after);
  if (result == CUDA_SUCCESS) return Replace(executor, request.exec, exec, std::move(after));
  executor.driver()->cuGraphDestroy(shell);
  return result;
}

namespace {

CUresult Change(Executor& executor, uint64_t id, uint32_t number, wire::ByteView parameters) {
  std::shared_ptr<GraphExec> exec;
  CUresult result = executor.objects().execs.Share(id, &exec);
  if (result != CUDA_SUCCESS) return result;
  wire::GraphDefinition alone;
  wire::GraphNode& node = alone.nodes.emplace_back();
  if (!wire::DecodeNode(parameters, &node)) return CUDA_ERROR_INVALID_VALUE;
  node.number = number;
  result = LoadKernels(executor, exec->context, alone);
  if (result == CUDA_SUCCESS) result = CheckThere(executor, id, *exec);
  if (result == CUDA_SUCCESS) result = executor.MakeCurrent(*exec->context);
  return result == CUDA_SUCCESS ? SetNode(executor, *exec, node) : result;
}

}  // namespace

CUresult Run(Executor& executor, const Command&, const rgpuGraphSetNode_Request& request,
             rgpuGraphSetNode_Reply*) {
  return Change(executor, request.exec, request.node, request.parameters);
}

CUresult Run(Executor& executor, const Command&, const rgpuGraphSetNodeLater_Request& request,
             rgpuGraphSetNodeLater_Reply*) {
  return Change(executor, request.exec, request.node, request.parameters);
}

CUresult Run(Executor& executor, const Command&, const rgpuGraphEnableNode_Request& request,
             rgpuGraphEnableNode_Reply*) {
  GraphExec* exec = nullptr;
  CUresult result = executor.objects().execs.Find(request.exec, &exec);
  if (result != CUDA_SUCCESS) return result;
  if (request.node >= exec->built.nodes.size()) return CUDA_ERROR_INVALID_VALUE;
  const ExecNode& node = exec->built.nodes[request.node];
  const unsigned int on = request.enabled != 0;
  const Driver& driver = executor.driver();
  if (node.own != nullptr) result = driver->cuGraphNodeSetEnabled(exec->handle, node.own, on);
  for (const CUgraphNode copy : node.copies) {
    if (result == CUDA_SUCCESS) result = driver->cuGraphNodeSetEnabled(exec->handle, copy, on);
  }
  if (result != CUDA_SUCCESS) return result;
  // Launches under way keep the list that they have.
  auto enabled = std::make_shared<std::vector<bool>>(*exec->built.enabled);
  (*enabled)[request.node] = on != 0;
  exec->built.enabled = std::move(enabled);
  return CUDA_SUCCESS;
}

CUresult Run(Executor& executor, const Command&, const rgpuGraphExecDestroy_Request& request,
             rgpuGraphExecDestroy_Reply*) {
  std::shared_ptr<GraphExec> exec;
  const CUresult result = executor.objects().execs.Take(request.exec, &exec);
  if (result == CUDA_SUCCESS) Retire(executor, exec, Everything(executor));
  return result;
}

}  // namespace rgpu::exec
