// The memory of alloc nodes. A graph has its memory from when the node is added until the graph
// and everything made from it are gone, so no two graphs share memory.
#pragma once

#include <memory>

#include "rgpu_client/shim/calls/here.h"
#include "rgpu_common/native/graph/params.h"

namespace rgpu::shim {

CUresult AllocateForGraph(const graph::AllocParams& params,
                          std::shared_ptr<graph::Allocation>* out);
// The node of a captured allocation, whose address the call returns at once.
CUresult MakeAllocNode(int device, uint64_t bytes, CUdeviceptr* dptr, graph::Params* params);
// For cuMemFree and cuMemFreeAsync: true if `address` is memory of an alloc node; the call returns
// `*result`. Costs one load while there is none.
bool FreeOfGraph(CUdeviceptr address, CUresult* result);

}  // namespace rgpu::shim
