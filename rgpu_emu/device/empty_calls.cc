// Calls about what the emulated device never has: linear textures. So the answers are numbers of
// nothing.
#include "gen/emu_calls.gen.h"

namespace rgpu::emu {

// CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH is 0 too.
CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t* maxWidthInElements, CUarray_format,
                                            unsigned numChannels, CUdevice) {
  const bool channels = numChannels == 1 || numChannels == 2 || numChannels == 4;
  if (!channels) return CUDA_ERROR_INVALID_VALUE;
  *maxWidthInElements = 0;
  return CUDA_SUCCESS;
}

}  // namespace rgpu::emu
