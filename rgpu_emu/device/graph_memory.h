// Memory of graphs: that of alloc nodes, and the values of conditional nodes.
#pragma once

#include <memory>

#include "rgpu_common/native/graph/graph.h"
#include "rgpu_common/native/graph/params.h"
#include "rgpu_emu/device/context.h"

namespace rgpu::emu {

// Allocates the memory of an alloc node. It is freed when nothing refers to `*out` any more and the
// work that was pending then is done.
CUresult AllocateForGraph(const graph::AllocParams& params,
                          std::shared_ptr<graph::Allocation>* out);

// A new value of conditional nodes: its handle is the address of a word of device memory, which
// kernels set with a store (cudaGraphSetConditional, ptx/runtime.py). It lives until nothing keeps
// it any more, or its context is destroyed.
CUresult NewConditional(graph::ConditionalHandle* handle);
// The context is destroyed, and its memory with it.
void ForgetConditionals(const Context& context);
// CUDA_ERROR_ILLEGAL_ADDRESS: the context is gone.
CUresult ReadConditional(CUgraphConditionalHandle handle, uint32_t* value);
CUresult WriteConditional(CUgraphConditionalHandle handle, uint32_t value);

// cuMemAllocAsync and cuMemFreeAsync on a stream that captures. False: it does not capture.
bool CaptureAllocation(const Stream& stream, size_t bytes, CUdeviceptr* address, CUresult* result);
bool CaptureFree(const Stream& stream, CUdeviceptr address, CUresult* result);

}  // namespace rgpu::emu
