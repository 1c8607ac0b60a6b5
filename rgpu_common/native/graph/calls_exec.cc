// Calls about executables.
#include <utility>

#include "rgpu_common/native/graph/calls.h"
#include "rgpu_common/native/graph/compare.h"
#include "rgpu_common/native/graph/hooks.h"
#include "rgpu_common/native/graph/make_params.h"

namespace rgpu::graph {
namespace {

// What an instantiation reports besides its result.
struct Report {
  CUgraphInstantiateResult why = CUDA_GRAPH_INSTANTIATE_ERROR;
  CUgraphNode node = nullptr;
};

// A checked copy of the template.
CUresult CopyTemplate(Model& model, CUgraph handle, uint64_t flags, Report* report,
                      Instance* instance) {
  Locked locked(model);
  const auto owned = model.graphs.find(Raw(handle));
  Graph* graph = model.FindGraph(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Node* node = nullptr;
  const CUresult result = CheckTemplate(*graph, flags, &report->why, &node);
  if (node != nullptr) report->node = As<CUgraphNode>(node->handle);
  if (result != CUDA_SUCCESS) return result;
  *instance = MakeInstance(Clone(*graph), flags);
  if (graph->has_memory_nodes && owned != model.graphs.end()) {
    instance->source = owned->second;
    ++graph->executables;
  }
  return CUDA_SUCCESS;
}

// The template may be instantiated again.
void GiveBack(Model& model, std::shared_ptr<Graph> source) {
  if (source == nullptr) return;
  Locked locked(model);
  --source->executables;
  locked.Drop(std::move(source));
}

CUresult Instantiate(Model& model, CUgraph graph, uint64_t flags, Report* report,
                     std::shared_ptr<Exec>* exec) {
  Instance instance;
  CUresult result = CopyTemplate(model, graph, flags, report, &instance);
  if (result != CUDA_SUCCESS) return result;
  std::shared_ptr<Graph> source = instance.source;
  report->why = CUDA_GRAPH_INSTANTIATE_ERROR;
  result = model.host.NewExec(std::move(instance), exec);
  if (result != CUDA_SUCCESS) {
    GiveBack(model, std::move(source));
    return result;
  }
  report->why = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  (*exec)->handle = NewHandle(HandleKind::kExec);
  Locked locked(model);
  model.execs[(*exec)->handle] = *exec;
  return CUDA_SUCCESS;
}

CUresult Destroy(Model& model, CUgraphExec handle) {
  std::shared_ptr<Exec> exec;
  {
    Locked locked(model);
    auto entry = model.execs.extract(Raw(handle));
    if (entry.empty()) return CUDA_ERROR_INVALID_VALUE;
    exec = std::move(entry.mapped());
  }
  std::shared_ptr<Graph> source;
  {
    const std::lock_guard lock(exec->mutex);
    source = std::move(exec->instance.source);
  }
  GiveBack(model, std::move(source));
  exec.reset();
  RunDestructors(model);
  return CUDA_SUCCESS;
}

// Calls `body(exec, number)` with the lock of the executable.
template <class Body>
CUresult WithNode(Model& model, CUgraphExec handle, CUgraphNode node, const Body& body) {
  const std::shared_ptr<Exec> exec = model.FindExec(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(exec->mutex);
  uint32_t number = 0;
  if (!exec->instance.Find(node, &number)) return CUDA_ERROR_INVALID_VALUE;
  return body(*exec, number);
}

// Replaces the parameters of one node.
CUresult Replace(Exec& exec, uint32_t number, Params params) {
  Node& node = *exec.instance.nodes[number].node;
  CUresult result = MayReplace(node, params);
  if (result != CUDA_SUCCESS) return result;
  node.params.swap(params);
  result = exec.NodeChanged(number);
  if (result != CUDA_SUCCESS) node.params.swap(params);
  return result;
}

// Replaces them by those that `make(old, &new)` makes, where `old` is of type `Kind`.
template <class Kind, class Make>
CUresult Change(Model& model, CUgraphExec handle, CUgraphNode node, const Make& make) {
  return WithNode(model, handle, node, [&](Exec& exec, uint32_t number) {
    const auto* old = std::get_if<Kind>(&exec.instance.nodes[number].node->params);
    if (old == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Params params;
    const CUresult made = make(*old, &params);
    return made == CUDA_SUCCESS ? Replace(exec, number, std::move(params)) : made;
  });
}

// The executable takes the parameters of a graph like its own.
CUresult TakeGraph(Exec& exec, Graph* own, Graph* fresh) {
  const uint64_t handles_of = SameHandles(*own, *fresh) ? 0 : fresh->original;
  SwapParams(own, fresh);
  const CUresult result = exec.Updated(handles_of);
  if (result != CUDA_SUCCESS) SwapParams(own, fresh);
  return result;
}

// A private copy of a graph of the program, or null.
std::shared_ptr<Graph> CopyGraph(Model& model, CUgraph handle) {
  Locked locked(model);
  const Graph* graph = model.FindGraph(handle);
  return graph == nullptr ? nullptr : Clone(*graph);
}

CUgraphNode TemplateOf(const Node* node) {
  return node == nullptr ? nullptr : As<CUgraphNode>(node->original);
}

CUresult UpdateResult(const Difference& found, CUgraphExecUpdateResultInfo* info) {
  *info = {found.result, TemplateOf(found.node), TemplateOf(found.from)};
  return found.result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS
                                                      : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

bool CanBeDisabled(CUgraphNodeType type) {
  return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMSET ||
         type == CU_GRAPH_NODE_TYPE_MEMCPY;
}

// A launch into a stream that captures is a child graph.
CUresult MakeChild(Exec& exec, Params* params) {
  const std::lock_guard lock(exec.mutex);
  if (exec.instance.graph->has_memory_nodes) return CUDA_ERROR_NOT_SUPPORTED;
  *params = ChildParams{Clone(*exec.instance.graph)};
  return CUDA_SUCCESS;
}

CUresult LaunchNow(Model& model, Exec& exec, CUstream stream) {
  const std::lock_guard lock(exec.mutex);
  if (!exec.instance.graph->has_memory_nodes) return exec.Launch(stream);
  Memory::Undo undo;
  {
    Locked locked(model);
    const CUresult result = model.memory.Launch(exec.instance, &undo);
    if (result != CUDA_SUCCESS) return result;
  }
  const CUresult result = exec.Launch(stream);
  if (result != CUDA_SUCCESS) {
    Locked locked(model);
    model.memory.Revert(undo);
  }
  return result;
}

}  // namespace

CUresult GraphInstantiateWithFlags(Model& model, CUgraphExec* phGraphExec, CUgraph hGraph,
                                   unsigned long long flags) {
  // An upload needs a stream (cuGraphInstantiateWithParams).
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0) return CUDA_ERROR_INVALID_VALUE;
  Report report;
  std::shared_ptr<Exec> exec;
  const CUresult result = Instantiate(model, hGraph, flags, &report, &exec);
  if (result == CUDA_SUCCESS) *phGraphExec = As<CUgraphExec>(exec->handle);
  return result;
}

CUresult GraphInstantiateWithParams(Model& model, CUgraphExec* phGraphExec, CUgraph hGraph,
                                    CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  Report report;
  std::shared_ptr<Exec> exec;
  const uint64_t flags = instantiateParams->flags;
  CUresult result = Instantiate(model, hGraph, flags, &report, &exec);
  instantiateParams->result_out = report.why;
  instantiateParams->hErrNode_out = report.node;
  if (result != CUDA_SUCCESS) return result;
  const auto handle = As<CUgraphExec>(exec->handle);
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0)
    result = GraphUpload(model, handle, instantiateParams->hUploadStream);
  if (result != CUDA_SUCCESS) {
    instantiateParams->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
    Destroy(model, handle);
    return result;
  }
  *phGraphExec = handle;
  return CUDA_SUCCESS;
}

CUresult GraphExecGetFlags(Model& model, CUgraphExec hGraphExec, cuuint64_t* flags) {
  const std::shared_ptr<Exec> exec = model.FindExec(hGraphExec);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = exec->instance.flags;
  return CUDA_SUCCESS;
}

CUresult GraphExecKernelNodeSetParams(Model& model, CUgraphExec hGraphExec, CUgraphNode hNode,
                                      const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return Change<KernelParams>(model, hGraphExec, hNode,
                              [&](const KernelParams& old, Params* params) {
                                return MakeKernel(model.host, *nodeParams, old.attributes, params);
                              });
}

CUresult GraphExecMemcpyNodeSetParams(Model& model, CUgraphExec hGraphExec, CUgraphNode hNode,
                                      const CUDA_MEMCPY3D* copyParams, CUcontext ctx) {
  return Change<CopyParams>(model, hGraphExec, hNode, [&](const CopyParams&, Params* params) {
    return MakeCopy(model.host, *copyParams, ctx, params);
  });
}

CUresult GraphExecMemsetNodeSetParams(Model& model, CUgraphExec hGraphExec, CUgraphNode hNode,
                                      const CUDA_MEMSET_NODE_PARAMS* memsetParams, CUcontext ctx) {
  return Change<SetParams>(model, hGraphExec, hNode, [&](const SetParams&, Params* params) {
    return MakeSet(model.host, *memsetParams, ctx, params);
  });
}

CUresult GraphExecHostNodeSetParams(Model& model, CUgraphExec hGraphExec, CUgraphNode hNode,
                                    const CUDA_HOST_NODE_PARAMS* nodeParams) {
  return Change<HostParams>(model, hGraphExec, hNode, [&](const HostParams&, Params* params) {
    return MakeHost(nodeParams->fn, nodeParams->userData, params);
  });
}

CUresult GraphExecEventRecordNodeSetEvent(Model& model, CUgraphExec hGraphExec, CUgraphNode hNode,
                                          CUevent event) {
  return Change<RecordParams>(model, hGraphExec, hNode, [&](const RecordParams&, Params* params) {
    return MakeRecord(model.host, event, params);
  });
}

CUresult GraphExecEventWaitNodeSetEvent(Model& model, CUgraphExec hGraphExec, CUgraphNode hNode,
                                        CUevent event) {
  return Change<WaitParams>(model, hGraphExec, hNode, [&](const WaitParams&, Params* params) {
    return MakeWait(model.host, event, params);
  });
}

CUresult GraphExecBatchMemOpNodeSetParams(Model& model, CUgraphExec hGraphExec, CUgraphNode hNode,
                                          const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  return Change<BatchParams>(model, hGraphExec, hNode, [&](const BatchParams&, Params* params) {
    return MakeBatch(model.host, *nodeParams, params);
  });
}

CUresult GraphExecChildGraphNodeSetParams(Model& model, CUgraphExec hGraphExec, CUgraphNode hNode,
                                          CUgraph childGraph) {
  const std::shared_ptr<Graph> fresh = CopyGraph(model, childGraph);
  if (fresh == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return WithNode(model, hGraphExec, hNode, [&](Exec& exec, uint32_t number) {
    auto* child = std::get_if<ChildParams>(&exec.instance.nodes[number].node->params);
    if (child == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (Compare(*child->graph, *fresh).result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
      return CUDA_ERROR_INVALID_VALUE;
    return TakeGraph(exec, child->graph.get(), fresh.get());
  });
}

CUresult GraphExecNodeSetParams(Model& model, CUgraphExec hGraphExec, CUgraphNode hNode,
                                CUgraphNodeParams* nodeParams) {
  switch (nodeParams->type) {
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return GraphExecChildGraphNodeSetParams(model, hGraphExec, hNode, nodeParams->graph.graph);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      break;
  }
  return WithNode(model, hGraphExec, hNode, [&](Exec& exec, uint32_t number) {
    const Params& old = exec.instance.nodes[number].node->params;
    if (TypeOf(old) != nodeParams->type) return CUDA_ERROR_INVALID_VALUE;
    Params params;
    const CUresult made = MakeAny(model.host, *nodeParams, &old, &params);
    return made == CUDA_SUCCESS ? Replace(exec, number, std::move(params)) : made;
  });
}

CUresult GraphNodeSetEnabled(Model& model, CUgraphExec hGraphExec, CUgraphNode hNode,
                             unsigned int isEnabled) {
  return WithNode(model, hGraphExec, hNode, [&](Exec& exec, uint32_t number) {
    Instance::Entry& entry = exec.instance.nodes[number];
    if (!CanBeDisabled(entry.node->type())) return CUDA_ERROR_INVALID_VALUE;
    const bool before = std::exchange(entry.enabled, isEnabled != 0);
    const CUresult result = exec.NodeChanged(number);
    if (result != CUDA_SUCCESS) entry.enabled = before;
    return result;
  });
}

CUresult GraphNodeGetEnabled(Model& model, CUgraphExec hGraphExec, CUgraphNode hNode,
                             unsigned int* isEnabled) {
  return WithNode(model, hGraphExec, hNode, [&](Exec& exec, uint32_t number) {
    const Instance::Entry& entry = exec.instance.nodes[number];
    if (!CanBeDisabled(entry.node->type())) return CUDA_ERROR_INVALID_VALUE;
    *isEnabled = entry.enabled ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

CUresult GraphExecUpdate(Model& model, CUgraphExec hGraphExec, CUgraph hGraph,
                         CUgraphExecUpdateResultInfo* resultInfo) {
  *resultInfo = {CU_GRAPH_EXEC_UPDATE_ERROR, nullptr, nullptr};
  const std::shared_ptr<Exec> exec = model.FindExec(hGraphExec);
  const std::shared_ptr<Graph> fresh = CopyGraph(model, hGraph);
  if (exec == nullptr || fresh == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(exec->mutex);
  const Difference found = Compare(*exec->instance.graph, *fresh);
  if (found.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return UpdateResult(found, resultInfo);
  const CUresult result = TakeGraph(*exec, exec->instance.graph.get(), fresh.get());
  if (result == CUDA_SUCCESS) UpdateResult(found, resultInfo);
  return result;
}

CUresult GraphUpload(Model& model, CUgraphExec hGraphExec, CUstream hStream) {
  StreamSite stream;
  CUresult result = model.host.FindStream(hStream, &stream);
  if (result != CUDA_SUCCESS) return result;
  const std::shared_ptr<Exec> exec = model.FindExec(hGraphExec);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  result = CheckStreamWait(model, stream);  // an upload cannot be captured
  if (result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(exec->mutex);
  return exec->Upload(hStream);
}

CUresult GraphLaunch(Model& model, CUgraphExec hGraphExec, CUstream hStream) {
  StreamSite stream;
  CUresult result = model.host.FindStream(hStream, &stream);
  if (result != CUDA_SUCCESS) return result;
  const std::shared_ptr<Exec> exec = model.FindExec(hGraphExec);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool captured =
      Capture(model, stream, &result, [&](Params* params) { return MakeChild(*exec, params); });
  return captured ? result : LaunchNow(model, *exec, hStream);
}

CUresult GraphExecDestroy(Model& model, CUgraphExec hGraphExec) {
  return Destroy(model, hGraphExec);
}

}  // namespace rgpu::graph
