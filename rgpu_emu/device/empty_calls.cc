// Calls about what the emulated device never has: memory of graphs. So the answers are numbers of
// nothing.
#include "gen/emu_calls.gen.h"

namespace rgpu::emu {
namespace {

bool IsHighWaterMark(CUgraphMem_attribute attribute) {
  return attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH ||
         attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
}

}  // namespace

CUresult cuDeviceGraphMemTrim(CUdevice) { return CUDA_SUCCESS; }

CUresult cuDeviceGetGraphMemAttribute(CUdevice, CUgraphMem_attribute, void* value) {
  *static_cast<cuuint64_t*>(value) = 0;
  return CUDA_SUCCESS;
}

// A high-water mark can only be reset to 0.
CUresult cuDeviceSetGraphMemAttribute(CUdevice, CUgraphMem_attribute attr, void* value) {
  if (!IsHighWaterMark(attr)) return CUDA_ERROR_INVALID_VALUE;
  return *static_cast<cuuint64_t*>(value) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace rgpu::emu
