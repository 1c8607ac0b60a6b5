// Changes of single nodes of an executable graph.
#include <algorithm>

#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/graphs/build.h"
#include "rgpu_server/executor/graphs/params.h"
#include "rgpu_server/executor/rows.h"

namespace rgpu::exec {

namespace {

class Change {
 public:
  Change(Executor& executor, GraphExec& exec, ExecNode& node)
      : driver_(executor.driver()), exec_(exec), node_(node), operands_(executor, exec.context) {}

  CUresult Run(const wire::GraphNode& node) {
    const CUresult result =
        std::visit([&](const auto& parameters) { return Set(parameters); }, node.parameters);
    for (const auto& context : operands_.contexts()) {
      auto& known = exec_.built.contexts;
      if (std::ranges::find(known, context) == known.end()) known.push_back(context);
    }
    return result;
  }

 private:
  CUresult Set(const wire::GraphKernel& kernel);
  CUresult Set(const wire::GraphCopy& copy);
  CUresult Set(const wire::GraphSet& set);
  CUresult Set(const wire::GraphEventRecord& record);
  CUresult Set(const wire::GraphEventWait& wait);
  CUresult Set(const wire::GraphMemoryOperations& batch);
  // The others have no parameters here, or graphs inside.
  template <typename Other>
  CUresult Set(const Other&) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  CUresult SetHostCopy(const wire::GraphCopy& copy);

  const Driver& driver_;
  GraphExec& exec_;
  ExecNode& node_;
  GraphOperands operands_;
};

CUresult Change::Set(const wire::GraphKernel& kernel) {
  KernelParams params;
  CUresult result = operands_.Kernel(kernel, &params);
  if (result != CUDA_SUCCESS) return result;
  result = driver_->cuGraphExecKernelNodeSetParams_v2(exec_.handle, node_.own, &params.driver);
  if (result == CUDA_SUCCESS) node_.code = params.function->code;
  return result;
}

CUresult Change::Set(const wire::GraphCopy& copy) {
  if (copy.has_host_side() == node_.copies.empty()) return CUDA_ERROR_INVALID_VALUE;
  if (copy.has_host_side()) return SetHostCopy(copy);
  CopyParams params;
  CUresult result = operands_.Copy(copy, &params);
  if (result != CUDA_SUCCESS) return result;
  result = driver_->cuGraphExecMemcpyNodeSetParams(exec_.handle, node_.own, &params.driver,
                                                   params.context);
  if (result == CUDA_SUCCESS) node_.arrays = std::move(params.arrays);
  return result;
}

// Only the device side may change, and only its place: everything else is also in the steps. How
// the copy is divided is the worker's affair, so a portion that the driver does not change is no
// error of the program.
CUresult Change::SetHostCopy(const wire::GraphCopy& copy) {
  CopyParams params;
  const CUresult checked = operands_.HostCopy(copy, &params);
  if (checked != CUDA_SUCCESS) return checked;
  if (!node_.shape || !SameShape(*node_.shape, copy)) return CUDA_ERROR_NOT_SUPPORTED;
  std::vector<Portion> portions;
  if (!PortionsOf(params.rows, &portions) || portions.size() != node_.copies.size()) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const std::vector<Piece>& slots = exec_.built.steps->slots();
  for (size_t i = 0; i < portions.size(); ++i) {
    const CUDA_MEMCPY3D part =
        CopyOfPortion(copy, params.rows, portions[i], slots[i % slots.size()].data);
    const CUresult result = driver_->cuGraphExecMemcpyNodeSetParams(exec_.handle, node_.copies[i],
                                                                    &part, params.context);
    if (result == CUDA_SUCCESS) continue;
    node_.torn = node_.torn || i > 0;
    return result == CUDA_ERROR_INVALID_VALUE ? CUDA_ERROR_NOT_SUPPORTED : result;
  }
  node_.torn = false;
  node_.arrays = std::move(params.arrays);
  return CUDA_SUCCESS;
}

CUresult Change::Set(const wire::GraphSet& set) {
  CUDA_MEMSET_NODE_PARAMS params;
  CUcontext context = nullptr;
  const CUresult result = operands_.Set(set, &params, &context);
  if (result != CUDA_SUCCESS) return result;
  return driver_->cuGraphExecMemsetNodeSetParams(exec_.handle, node_.own, &params, context);
}

CUresult Change::Set(const wire::GraphEventRecord& record) {
  CUevent event = nullptr;
  std::shared_ptr<Event> records;
  CUresult result = operands_.EventOf(record.event, &records, &event);
  if (result != CUDA_SUCCESS) return result;
  result = driver_->cuGraphExecEventRecordNodeSetEvent(exec_.handle, node_.own, event);
  if (result == CUDA_SUCCESS) node_.records = std::move(records);
  return result;
}

CUresult Change::Set(const wire::GraphEventWait& wait) {
  CUevent event = nullptr;
  CUresult result = operands_.EventOf(wait.event, &node_.waits_for, &event);
  if (result != CUDA_SUCCESS) return result;
  return driver_->cuGraphExecEventWaitNodeSetEvent(exec_.handle, node_.own, event);
}

CUresult Change::Set(const wire::GraphMemoryOperations& batch) {
  // It becomes a wait, which needs its halts.
  if (!node_.may_wait && WaitsForValue({0, true, batch})) return CUDA_ERROR_NOT_SUPPORTED;
  std::vector<CUstreamBatchMemOpParams> operations;
  CUDA_BATCH_MEM_OP_NODE_PARAMS params;
  const CUresult result = operands_.MemoryOperations(batch, &operations, &params);
  if (result != CUDA_SUCCESS) return result;
  return driver_->cuGraphExecBatchMemOpNodeSetParams(exec_.handle, node_.own, &params);
}

}  // namespace

CUresult SetNode(Executor& executor, GraphExec& exec, const wire::GraphNode& node) {
  if (node.number >= exec.built.nodes.size()) return CUDA_ERROR_INVALID_VALUE;
  ExecNode& kept = exec.built.nodes[node.number];
  if (kept.kind != node.parameters.index()) return CUDA_ERROR_INVALID_VALUE;
  return Change(executor, exec, kept).Run(node);
}

}  // namespace rgpu::exec
