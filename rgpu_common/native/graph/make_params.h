// From the structures of cuda.h to owned parameters, and back.
//
// The makers call the host's checks, so they run without the model's lock.
#pragma once

#include "rgpu_common/native/graph/host.h"
#include "rgpu_common/native/graph/params.h"

namespace rgpu::graph {

CUresult MakeKernel(Host& host, const CUDA_KERNEL_NODE_PARAMS& from, Attributes attributes,
                    Params* params);
// Packs the parameter bytes as a launch does: `values` is kernelParams, or `extra` is given.
CUresult PackKernel(const KernelSite& site, void** values, void** extra, KernelParams* kernel);
// A null context is the current one.
CUresult MakeCopy(Host& host, const CUDA_MEMCPY3D& from, CUcontext context, Params* params);
CUresult MakeSet(Host& host, const CUDA_MEMSET_NODE_PARAMS& from, CUcontext context,
                 Params* params);
CUresult MakeHost(CUhostFn function, void* data, Params* params);
CUresult MakeRecord(Host& host, CUevent event, Params* params);
CUresult MakeWait(Host& host, CUevent event, Params* params);
CUresult MakeBatch(Host& host, const CUDA_BATCH_MEM_OP_NODE_PARAMS& from, Params* params);
// Allocates the memory.
CUresult MakeAlloc(Host& host, const CUDA_MEM_ALLOC_NODE_PARAMS& from, Params* params);

// The parameters of a node of any type except child graphs and conditional nodes, which need the
// model. `before`: the parameters that they replace, or null.
CUresult MakeAny(Host& host, const CUgraphNodeParams& from, const Params* before, Params* params);

// What the getters return. Pointers are valid until the parameters change.
CUDA_KERNEL_NODE_PARAMS Show(KernelParams& kernel);
CUDA_MEMSET_NODE_PARAMS Show(const SetParams& set);
CUDA_BATCH_MEM_OP_NODE_PARAMS Show(BatchParams& batch);
CUDA_MEM_ALLOC_NODE_PARAMS Show(const AllocParams& alloc);

}  // namespace rgpu::graph
