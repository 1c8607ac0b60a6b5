// Calls about what the emulated device never has: memory of graphs and linear textures. So the
// answers are numbers of nothing.
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

// CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH is 0 too.
CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t* maxWidthInElements, CUarray_format,
                                            unsigned numChannels, CUdevice) {
  const bool channels = numChannels == 1 || numChannels == 2 || numChannels == 4;
  if (!channels) return CUDA_ERROR_INVALID_VALUE;
  *maxWidthInElements = 0;
  return CUDA_SUCCESS;
}

}  // namespace rgpu::emu
