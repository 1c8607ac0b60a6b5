"""Parameters of graph nodes and of instantiation.  Data only."""

from cudaspec.model import Alias, Struct

TYPES = [
    Struct("CUDA_KERNEL_NODE_PARAMS_v1", "CUDA_KERNEL_NODE_PARAMS_st", (
        "CUfunction func", "unsigned int gridDimX", "unsigned int gridDimY", "unsigned int gridDimZ",
        "unsigned int blockDimX", "unsigned int blockDimY", "unsigned int blockDimZ", "unsigned int sharedMemBytes",
        "void **kernelParams", "void **extra",
    )),
    Struct("CUDA_KERNEL_NODE_PARAMS_v2", "CUDA_KERNEL_NODE_PARAMS_v2_st", (
        "CUfunction func", "unsigned int gridDimX", "unsigned int gridDimY", "unsigned int gridDimZ",
        "unsigned int blockDimX", "unsigned int blockDimY", "unsigned int blockDimZ", "unsigned int sharedMemBytes",
        "void **kernelParams", "void **extra", "CUkernel kern", "CUcontext ctx",
    )),
    Alias("CUDA_KERNEL_NODE_PARAMS", "CUDA_KERNEL_NODE_PARAMS_v2"),
    Struct("CUDA_KERNEL_NODE_PARAMS_v3", "CUDA_KERNEL_NODE_PARAMS_v3_st", (
        "CUfunction func", "unsigned int gridDimX", "unsigned int gridDimY", "unsigned int gridDimZ",
        "unsigned int blockDimX", "unsigned int blockDimY", "unsigned int blockDimZ", "unsigned int sharedMemBytes",
        "void **kernelParams", "void **extra", "CUkernel kern", "CUcontext ctx",
    )),
    Struct("CUDA_MEMSET_NODE_PARAMS_v1", "CUDA_MEMSET_NODE_PARAMS_st", (
        "CUdeviceptr dst", "size_t pitch", "unsigned int value", "unsigned int elementSize", "size_t width",
        "size_t height",
    )),
    Alias("CUDA_MEMSET_NODE_PARAMS", "CUDA_MEMSET_NODE_PARAMS_v1"),
    Struct("CUDA_MEMSET_NODE_PARAMS_v2", "CUDA_MEMSET_NODE_PARAMS_v2_st", (
        "CUdeviceptr dst", "size_t pitch", "unsigned int value", "unsigned int elementSize", "size_t width",
        "size_t height", "CUcontext ctx",
    )),
    Struct("CUDA_HOST_NODE_PARAMS_v1", "CUDA_HOST_NODE_PARAMS_st", (
        "CUhostFn fn", "void* userData",
    )),
    Alias("CUDA_HOST_NODE_PARAMS", "CUDA_HOST_NODE_PARAMS_v1"),
    Struct("CUDA_HOST_NODE_PARAMS_v2", "CUDA_HOST_NODE_PARAMS_v2_st", (
        "CUhostFn fn", "void* userData",
    ), grows=("CUDA_HOST_NODE_PARAMS_v2",)),
    Struct("CUDA_BATCH_MEM_OP_NODE_PARAMS_v1", "CUDA_BATCH_MEM_OP_NODE_PARAMS_v1_st", (
        "CUcontext ctx", "unsigned int count", "CUstreamBatchMemOpParams *paramArray", "unsigned int flags",
    )),
    Alias("CUDA_BATCH_MEM_OP_NODE_PARAMS", "CUDA_BATCH_MEM_OP_NODE_PARAMS_v1"),
    Struct("CUDA_BATCH_MEM_OP_NODE_PARAMS_v2", "CUDA_BATCH_MEM_OP_NODE_PARAMS_v2_st", (
        "CUcontext ctx", "unsigned int count", "CUstreamBatchMemOpParams *paramArray", "unsigned int flags",
    )),
    Struct("CUDA_MEM_ALLOC_NODE_PARAMS_v1", "CUDA_MEM_ALLOC_NODE_PARAMS_v1_st", (
        "CUmemPoolProps poolProps", "const CUmemAccessDesc *accessDescs", "size_t accessDescCount",
        "size_t bytesize", "CUdeviceptr dptr",
    )),
    Alias("CUDA_MEM_ALLOC_NODE_PARAMS", "CUDA_MEM_ALLOC_NODE_PARAMS_v1"),
    Struct("CUDA_MEM_ALLOC_NODE_PARAMS_v2", "CUDA_MEM_ALLOC_NODE_PARAMS_v2_st", (
        "CUmemPoolProps poolProps", "const CUmemAccessDesc *accessDescs", "size_t accessDescCount",
        "size_t bytesize", "CUdeviceptr dptr",
    )),
    Struct("CUDA_MEM_FREE_NODE_PARAMS", "CUDA_MEM_FREE_NODE_PARAMS_st", ("CUdeviceptr dptr",)),
    Struct("CUDA_MEMCPY_NODE_PARAMS", "CUDA_MEMCPY_NODE_PARAMS_st", (
        "int flags", "int reserved", "CUcontext copyCtx", "CUDA_MEMCPY3D copyParams",
    )),
    Struct("CUDA_CHILD_GRAPH_NODE_PARAMS", "CUDA_CHILD_GRAPH_NODE_PARAMS_st", (
        "CUgraph graph", "CUgraphChildGraphNodeOwnership ownership",
    )),
    Struct("CUDA_EVENT_RECORD_NODE_PARAMS", "CUDA_EVENT_RECORD_NODE_PARAMS_st", ("CUevent event",),
           grows=("CUDA_EVENT_RECORD_NODE_PARAMS",)),
    Struct("CUDA_EVENT_WAIT_NODE_PARAMS", "CUDA_EVENT_WAIT_NODE_PARAMS_st", ("CUevent event",)),
    Struct("CUDA_CONDITIONAL_NODE_PARAMS", "CUDA_CONDITIONAL_NODE_PARAMS", (
        "CUgraphConditionalHandle handle", "CUgraphConditionalNodeType type", "unsigned int size", "CUgraph *phGraph_out",
        "CUcontext ctx",
    )),
    # External semaphores have no member: their nodes are refused.
    Struct("CUgraphNodeParams", "CUgraphNodeParams_st", (
        "CUgraphNodeType type", "int reserved0[3]",
        "union { long long reserved1[29]; CUDA_KERNEL_NODE_PARAMS_v3 kernel; CUDA_MEMCPY_NODE_PARAMS memcpy;"
        " CUDA_MEMSET_NODE_PARAMS_v2 memset; CUDA_HOST_NODE_PARAMS_v2 host; CUDA_CHILD_GRAPH_NODE_PARAMS graph;"
        " CUDA_EVENT_WAIT_NODE_PARAMS eventWait; CUDA_EVENT_RECORD_NODE_PARAMS eventRecord;"
        " CUDA_MEM_ALLOC_NODE_PARAMS_v2 alloc; CUDA_MEM_FREE_NODE_PARAMS free; CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 memOp;"
        " CUDA_CONDITIONAL_NODE_PARAMS conditional; }",
        "long long reserved2",
    ), grows=("host", "eventRecord")),
    Struct("CUDA_GRAPH_INSTANTIATE_PARAMS", "CUDA_GRAPH_INSTANTIATE_PARAMS_st", (
        "cuuint64_t flags", "CUstream hUploadStream", "CUgraphNode hErrNode_out", "CUgraphInstantiateResult result_out",
    )),
    Struct("CUgraphExecUpdateResultInfo_v1", "CUgraphExecUpdateResultInfo_st", (
        "CUgraphExecUpdateResult result", "CUgraphNode errorNode", "CUgraphNode errorFromNode",
    )),
    Alias("CUgraphExecUpdateResultInfo", "CUgraphExecUpdateResultInfo_v1"),
]
