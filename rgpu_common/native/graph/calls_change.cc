// Calls that change nodes.
#include "rgpu_common/native/graph/calls.h"
#include "rgpu_common/native/graph/make_params.h"

namespace rgpu::graph {
namespace {

// The parameters of a node, copied: what checks them runs without the lock.
CUresult CopyOf(Model& model, CUgraphNode node, Params* params) {
  Locked locked(model);
  const Node* found = model.FindNode(node);
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *params = found->params;
  return CUDA_SUCCESS;
}

CUresult Replace(Model& model, CUgraphNode node, Params params) {
  Locked locked(model);
  Node* found = model.FindNode(node);
  if (found == nullptr || found->type() != TypeOf(params)) return CUDA_ERROR_INVALID_VALUE;
  found->params.swap(params);
  return CUDA_SUCCESS;
}

// Replaces the parameters of a node of type `Kind` by those that `make(old, &new)` makes.
template <class Kind, class Make>
CUresult Change(Model& model, CUgraphNode node, const Make& make) {
  Params old;
  CUresult result = CopyOf(model, node, &old);
  if (result != CUDA_SUCCESS) return result;
  auto* of_kind = std::get_if<Kind>(&old);
  if (of_kind == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Params params;
  result = make(*of_kind, &params);
  return result == CUDA_SUCCESS ? Replace(model, node, std::move(params)) : result;
}

}  // namespace

CUresult GraphKernelNodeSetParams(Model& model, CUgraphNode hNode,
                                  const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return Change<KernelParams>(model, hNode, [&](KernelParams& old, Params* params) {
    return MakeKernel(model.host, *nodeParams, old.attributes, params);
  });
}

CUresult GraphMemcpyNodeSetParams(Model& model, CUgraphNode hNode,
                                  const CUDA_MEMCPY3D* nodeParams) {
  return Change<CopyParams>(model, hNode, [&](CopyParams& old, Params* params) {
    return MakeCopy(model.host, *nodeParams, old.context, params);
  });
}

CUresult GraphMemsetNodeSetParams(Model& model, CUgraphNode hNode,
                                  const CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  return Change<SetParams>(model, hNode, [&](SetParams& old, Params* params) {
    return MakeSet(model.host, *nodeParams, old.set.ctx, params);
  });
}

CUresult GraphHostNodeSetParams(Model& model, CUgraphNode hNode,
                                const CUDA_HOST_NODE_PARAMS* nodeParams) {
  return Change<HostParams>(model, hNode, [&](HostParams&, Params* params) {
    return MakeHost(nodeParams->fn, nodeParams->userData, params);
  });
}

CUresult GraphEventRecordNodeSetEvent(Model& model, CUgraphNode hNode, CUevent event) {
  return Change<RecordParams>(model, hNode, [&](RecordParams&, Params* params) {
    return MakeRecord(model.host, event, params);
  });
}

CUresult GraphEventWaitNodeSetEvent(Model& model, CUgraphNode hNode, CUevent event) {
  return Change<WaitParams>(model, hNode, [&](WaitParams&, Params* params) {
    return MakeWait(model.host, event, params);
  });
}

CUresult GraphBatchMemOpNodeSetParams(Model& model, CUgraphNode hNode,
                                      const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  return Change<BatchParams>(model, hNode, [&](BatchParams&, Params* params) {
    return MakeBatch(model.host, *nodeParams, params);
  });
}

CUresult GraphNodeSetParams(Model& model, CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
  Params old;
  CUresult result = CopyOf(model, hNode, &old);
  if (result != CUDA_SUCCESS) return result;
  if (TypeOf(old) != nodeParams->type) return CUDA_ERROR_INVALID_VALUE;
  switch (nodeParams->type) {
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      break;
  }
  Params params;
  result = MakeAny(model.host, *nodeParams, &old, &params);
  return result == CUDA_SUCCESS ? Replace(model, hNode, std::move(params)) : result;
}

CUresult GraphKernelNodeSetAttribute(Model& model, CUgraphNode hNode, CUkernelNodeAttrID attr,
                                     const CUkernelNodeAttrValue* value) {
  return Change<KernelParams>(model, hNode, [&](KernelParams& old, Params* params) {
    // Kernels cannot change nodes here.
    if (attr == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE) return CUDA_ERROR_NOT_SUPPORTED;
    if (!IsNodeAttribute(attr)) return CUDA_ERROR_INVALID_VALUE;
    SetAttribute(&old.attributes, attr, *value);
    const CUresult result = model.host.CheckKernel(old);
    if (result == CUDA_SUCCESS) *params = std::move(old);
    return result;
  });
}

CUresult GraphKernelNodeCopyAttributes(Model& model, CUgraphNode dst, CUgraphNode src) {
  Params from;
  const CUresult found = CopyOf(model, src, &from);
  if (found != CUDA_SUCCESS) return found;
  const auto* kernel = std::get_if<KernelParams>(&from);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Change<KernelParams>(model, dst, [&](KernelParams& old, Params* params) {
    old.attributes = kernel->attributes;
    const CUresult result = model.host.CheckKernel(old);
    if (result == CUDA_SUCCESS) *params = std::move(old);
    return result;
  });
}

}  // namespace rgpu::graph
