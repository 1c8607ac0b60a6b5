// The functions of the driver API about graphs and capture, over a model. The shim and the emulated
// device define theirs with graph_calls.inc, which calls these. The arguments that the rows of
// cudaspec/calls/graph.py and stream.py check are checked.
#pragma once

#include "rgpu_common/native/graph/model.h"

namespace rgpu::graph {

// Stream capture (calls_capture.cc).

CUresult StreamBeginCapture(Model& model, CUstream hStream, CUstreamCaptureMode mode);
CUresult StreamBeginCaptureToGraph(Model& model, CUstream hStream, CUgraph hGraph,
                                   const CUgraphNode* dependencies,
                                   const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                   CUstreamCaptureMode mode);
CUresult ThreadExchangeStreamCaptureMode(Model& model, CUstreamCaptureMode* mode);
CUresult StreamEndCapture(Model& model, CUstream hStream, CUgraph* phGraph);
CUresult StreamIsCapturing(Model& model, CUstream hStream, CUstreamCaptureStatus* captureStatus);
CUresult StreamGetCaptureInfoV3(Model& model, CUstream hStream,
                                CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out,
                                CUgraph* graph_out, const CUgraphNode** dependencies_out,
                                const CUgraphEdgeData** edgeData_out, size_t* numDependencies_out);
CUresult StreamGetCaptureInfoV2(Model& model, CUstream hStream,
                                CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out,
                                CUgraph* graph_out, const CUgraphNode** dependencies_out,
                                size_t* numDependencies_out);
CUresult StreamGetCaptureInfo(Model& model, CUstream hStream,
                              CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out);
CUresult StreamUpdateCaptureDependencies(Model& model, CUstream hStream, CUgraphNode* dependencies,
                                         const CUgraphEdgeData* dependencyData,
                                         size_t numDependencies, unsigned int flags);

// Executables (calls_exec.cc).

CUresult GraphExecBatchMemOpNodeSetParams(Model& model, CUgraphExec hGraphExec, CUgraphNode hNode,
                                          const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams);
CUresult GraphInstantiateWithFlags(Model& model, CUgraphExec* phGraphExec, CUgraph hGraph,
                                   unsigned long long flags);
CUresult GraphInstantiateWithParams(Model& model, CUgraphExec* phGraphExec, CUgraph hGraph,
                                    CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams);
CUresult GraphExecGetFlags(Model& model, CUgraphExec hGraphExec, cuuint64_t* flags);
CUresult GraphExecKernelNodeSetParams(Model& model, CUgraphExec hGraphExec, CUgraphNode hNode,
                                      const CUDA_KERNEL_NODE_PARAMS* nodeParams);
CUresult GraphExecMemcpyNodeSetParams(Model& model, CUgraphExec hGraphExec, CUgraphNode hNode,
                                      const CUDA_MEMCPY3D* copyParams, CUcontext ctx);
CUresult GraphExecMemsetNodeSetParams(Model& model, CUgraphExec hGraphExec, CUgraphNode hNode,
                                      const CUDA_MEMSET_NODE_PARAMS* memsetParams, CUcontext ctx);
CUresult GraphExecHostNodeSetParams(Model& model, CUgraphExec hGraphExec, CUgraphNode hNode,
                                    const CUDA_HOST_NODE_PARAMS* nodeParams);
CUresult GraphExecChildGraphNodeSetParams(Model& model, CUgraphExec hGraphExec, CUgraphNode hNode,
                                          CUgraph childGraph);
CUresult GraphExecEventRecordNodeSetEvent(Model& model, CUgraphExec hGraphExec, CUgraphNode hNode,
                                          CUevent event);
CUresult GraphExecEventWaitNodeSetEvent(Model& model, CUgraphExec hGraphExec, CUgraphNode hNode,
                                        CUevent event);
CUresult GraphNodeSetEnabled(Model& model, CUgraphExec hGraphExec, CUgraphNode hNode,
                             unsigned int isEnabled);
CUresult GraphNodeGetEnabled(Model& model, CUgraphExec hGraphExec, CUgraphNode hNode,
                             unsigned int* isEnabled);
CUresult GraphUpload(Model& model, CUgraphExec hGraphExec, CUstream hStream);
CUresult GraphLaunch(Model& model, CUgraphExec hGraphExec, CUstream hStream);
CUresult GraphExecDestroy(Model& model, CUgraphExec hGraphExec);
CUresult GraphExecUpdate(Model& model, CUgraphExec hGraphExec, CUgraph hGraph,
                         CUgraphExecUpdateResultInfo* resultInfo);
CUresult GraphExecNodeSetParams(Model& model, CUgraphExec hGraphExec, CUgraphNode hNode,
                                CUgraphNodeParams* nodeParams);

// Building graphs (calls_build.cc).

CUresult GraphCreate(Model& model, CUgraph* phGraph, unsigned int flags);
CUresult GraphAddKernelNode(Model& model, CUgraphNode* phGraphNode, CUgraph hGraph,
                            const CUgraphNode* dependencies, size_t numDependencies,
                            const CUDA_KERNEL_NODE_PARAMS* nodeParams);
CUresult GraphKernelNodeSetParams(Model& model, CUgraphNode hNode,
                                  const CUDA_KERNEL_NODE_PARAMS* nodeParams);
CUresult GraphAddMemcpyNode(Model& model, CUgraphNode* phGraphNode, CUgraph hGraph,
                            const CUgraphNode* dependencies, size_t numDependencies,
                            const CUDA_MEMCPY3D* copyParams, CUcontext ctx);
CUresult GraphMemcpyNodeSetParams(Model& model, CUgraphNode hNode, const CUDA_MEMCPY3D* nodeParams);
CUresult GraphAddMemsetNode(Model& model, CUgraphNode* phGraphNode, CUgraph hGraph,
                            const CUgraphNode* dependencies, size_t numDependencies,
                            const CUDA_MEMSET_NODE_PARAMS* memsetParams, CUcontext ctx);
CUresult GraphMemsetNodeSetParams(Model& model, CUgraphNode hNode,
                                  const CUDA_MEMSET_NODE_PARAMS* nodeParams);
CUresult GraphAddHostNode(Model& model, CUgraphNode* phGraphNode, CUgraph hGraph,
                          const CUgraphNode* dependencies, size_t numDependencies,
                          const CUDA_HOST_NODE_PARAMS* nodeParams);
CUresult GraphHostNodeSetParams(Model& model, CUgraphNode hNode,
                                const CUDA_HOST_NODE_PARAMS* nodeParams);
CUresult GraphAddChildGraphNode(Model& model, CUgraphNode* phGraphNode, CUgraph hGraph,
                                const CUgraphNode* dependencies, size_t numDependencies,
                                CUgraph childGraph);
CUresult GraphAddEmptyNode(Model& model, CUgraphNode* phGraphNode, CUgraph hGraph,
                           const CUgraphNode* dependencies, size_t numDependencies);
CUresult GraphAddEventRecordNode(Model& model, CUgraphNode* phGraphNode, CUgraph hGraph,
                                 const CUgraphNode* dependencies, size_t numDependencies,
                                 CUevent event);
CUresult GraphEventRecordNodeSetEvent(Model& model, CUgraphNode hNode, CUevent event);
CUresult GraphAddEventWaitNode(Model& model, CUgraphNode* phGraphNode, CUgraph hGraph,
                               const CUgraphNode* dependencies, size_t numDependencies,
                               CUevent event);
CUresult GraphEventWaitNodeSetEvent(Model& model, CUgraphNode hNode, CUevent event);
CUresult GraphAddBatchMemOpNode(Model& model, CUgraphNode* phGraphNode, CUgraph hGraph,
                                const CUgraphNode* dependencies, size_t numDependencies,
                                const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams);
CUresult GraphBatchMemOpNodeSetParams(Model& model, CUgraphNode hNode,
                                      const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams);
CUresult GraphAddMemAllocNode(Model& model, CUgraphNode* phGraphNode, CUgraph hGraph,
                              const CUgraphNode* dependencies, size_t numDependencies,
                              CUDA_MEM_ALLOC_NODE_PARAMS* nodeParams);
CUresult GraphAddMemFreeNode(Model& model, CUgraphNode* phGraphNode, CUgraph hGraph,
                             const CUgraphNode* dependencies, size_t numDependencies,
                             CUdeviceptr dptr);
CUresult GraphClone(Model& model, CUgraph* phGraphClone, CUgraph originalGraph);
CUresult GraphAddDependencies(Model& model, CUgraph hGraph, const CUgraphNode* from,
                              const CUgraphNode* to, const CUgraphEdgeData* edgeData,
                              size_t numDependencies);
CUresult GraphRemoveDependencies(Model& model, CUgraph hGraph, const CUgraphNode* from,
                                 const CUgraphNode* to, const CUgraphEdgeData* edgeData,
                                 size_t numDependencies);
CUresult GraphDestroyNode(Model& model, CUgraphNode hNode);
CUresult GraphDestroy(Model& model, CUgraph hGraph);
CUresult GraphKernelNodeCopyAttributes(Model& model, CUgraphNode dst, CUgraphNode src);
CUresult GraphKernelNodeSetAttribute(Model& model, CUgraphNode hNode, CUkernelNodeAttrID attr,
                                     const CUkernelNodeAttrValue* value);
CUresult GraphAddNode(Model& model, CUgraphNode* phGraphNode, CUgraph hGraph,
                      const CUgraphNode* dependencies, const CUgraphEdgeData* dependencyData,
                      size_t numDependencies, CUgraphNodeParams* nodeParams);
CUresult GraphNodeSetParams(Model& model, CUgraphNode hNode, CUgraphNodeParams* nodeParams);
CUresult GraphConditionalHandleCreate(Model& model, CUgraphConditionalHandle* pHandle_out,
                                      CUgraph hGraph, CUcontext ctx,
                                      unsigned int defaultLaunchValue, unsigned int flags);

// Questions about graphs and nodes (calls_query.cc).

CUresult GraphKernelNodeGetParams(Model& model, CUgraphNode hNode,
                                  CUDA_KERNEL_NODE_PARAMS* nodeParams);
CUresult GraphMemcpyNodeGetParams(Model& model, CUgraphNode hNode, CUDA_MEMCPY3D* nodeParams);
CUresult GraphMemsetNodeGetParams(Model& model, CUgraphNode hNode,
                                  CUDA_MEMSET_NODE_PARAMS* nodeParams);
CUresult GraphHostNodeGetParams(Model& model, CUgraphNode hNode, CUDA_HOST_NODE_PARAMS* nodeParams);
CUresult GraphChildGraphNodeGetGraph(Model& model, CUgraphNode hNode, CUgraph* phGraph);
CUresult GraphEventRecordNodeGetEvent(Model& model, CUgraphNode hNode, CUevent* event_out);
CUresult GraphEventWaitNodeGetEvent(Model& model, CUgraphNode hNode, CUevent* event_out);
CUresult GraphBatchMemOpNodeGetParams(Model& model, CUgraphNode hNode,
                                      CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams_out);
CUresult GraphMemAllocNodeGetParams(Model& model, CUgraphNode hNode,
                                    CUDA_MEM_ALLOC_NODE_PARAMS* params_out);
CUresult GraphMemFreeNodeGetParams(Model& model, CUgraphNode hNode, CUdeviceptr* dptr_out);
CUresult GraphNodeFindInClone(Model& model, CUgraphNode* phNode, CUgraphNode hOriginalNode,
                              CUgraph hClonedGraph);
CUresult GraphNodeGetType(Model& model, CUgraphNode hNode, CUgraphNodeType* type);
CUresult GraphGetNodes(Model& model, CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes);
CUresult GraphGetRootNodes(Model& model, CUgraph hGraph, CUgraphNode* rootNodes,
                           size_t* numRootNodes);
CUresult GraphGetEdges(Model& model, CUgraph hGraph, CUgraphNode* from, CUgraphNode* to,
                       CUgraphEdgeData* edgeData, size_t* numEdges);
CUresult GraphNodeGetDependencies(Model& model, CUgraphNode hNode, CUgraphNode* dependencies,
                                  CUgraphEdgeData* edgeData, size_t* numDependencies);
CUresult GraphNodeGetDependentNodes(Model& model, CUgraphNode hNode, CUgraphNode* dependentNodes,
                                    CUgraphEdgeData* edgeData, size_t* numDependentNodes);
CUresult GraphKernelNodeGetAttribute(Model& model, CUgraphNode hNode, CUkernelNodeAttrID attr,
                                     CUkernelNodeAttrValue* value_out);
CUresult GraphDebugDotPrint(Model& model, CUgraph hGraph, const char* path, unsigned int flags);

// User objects (calls_object.cc).

CUresult UserObjectCreate(Model& model, CUuserObject* object_out, void* ptr, CUhostFn destroy,
                          unsigned int initialRefcount, unsigned int flags);
CUresult UserObjectRetain(Model& model, CUuserObject object, unsigned int count);
CUresult UserObjectRelease(Model& model, CUuserObject object, unsigned int count);
CUresult GraphRetainUserObject(Model& model, CUgraph graph, CUuserObject object, unsigned int count,
                               unsigned int flags);
CUresult GraphReleaseUserObject(Model& model, CUgraph graph, CUuserObject object,
                                unsigned int count);

}  // namespace rgpu::graph
