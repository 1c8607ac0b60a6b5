// Calls cuFunc* and cuOccupancy*.
#include <algorithm>

#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/function.h"

namespace rgpu::emu {
namespace {

template <class F>
CUresult WithFunction(CUfunction handle, F body) {
  std::shared_ptr<Function> function;
  const CUresult found = FindFunction(handle, &function);
  return found == CUDA_SUCCESS ? body(*function) : found;
}

}  // namespace

CUresult cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
  return WithFunction(hfunc,
                      [&](Function& f) { return GetAttribute(f.info(), *f.state, attrib, pi); });
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  return WithFunction(
      hfunc, [&](Function& f) { return SetAttribute(f.info(), f.state.get(), attrib, value); });
}

CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config) {
  if (config > CU_FUNC_CACHE_PREFER_EQUAL) return CUDA_ERROR_INVALID_VALUE;
  return WithFunction(hfunc, [](Function&) { return CUDA_SUCCESS; });
}

CUresult cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config) {
  if (config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE) return CUDA_ERROR_INVALID_VALUE;
  return WithFunction(hfunc, [](Function&) { return CUDA_SUCCESS; });
}

CUresult cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
  return WithFunction(hfunc, [&](Function& f) {
    *hmod = As<CUmodule>(f.module()->handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncGetName(const char** name, CUfunction hfunc) {
  if (hfunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return WithFunction(hfunc, [&](Function& f) {
    *name = f.info().name.c_str();
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t* paramOffset,
                            size_t* paramSize) {
  return WithFunction(
      func, [&](Function& f) { return ParamInfoOf(f.info(), paramIndex, paramOffset, paramSize); });
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  return WithFunction(function, [&](Function& f) {
    const bool loaded = f.module()->code()->Lowered(f.entry);
    *state = loaded ? CU_FUNCTION_LOADING_STATE_LOADED : CU_FUNCTION_LOADING_STATE_UNLOADED;
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncLoad(CUfunction function) {
  return WithFunction(function, [](Function& f) {
    std::shared_ptr<const Kernel> kernel;
    return f.module()->code()->Lower(f.entry, &kernel).result;
  });
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* numBlocks, CUfunction func,
                                                              int blockSize, size_t dynamicSMemSize,
                                                              unsigned int) {
  return WithFunction(func, [&](Function& f) {
    *numBlocks = BlocksPerSm(f.info(), blockSize, dynamicSMemSize);
    return CUDA_SUCCESS;
  });
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* numBlocks, CUfunction func, int blockSize,
                                                     size_t dynamicSMemSize) {
  return emu::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, func, blockSize,
                                                                   dynamicSMemSize, 0);
}

// Finds the block size with the most resident threads; among equals, the largest block.
CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* minGridSize, int* blockSize,
                                                   CUfunction func,
                                                   CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                   size_t dynamicSMemSize, int blockSizeLimit,
                                                   unsigned int) {
  return WithFunction(func, [&](Function& f) {
    int limit = MaxThreads(f.info());
    if (blockSizeLimit != 0) limit = std::min(limit, blockSizeLimit);
    int best_threads = 0;
    *blockSize = 0;
    *minGridSize = 0;
    for (int size = (limit + kWarpSize - 1) / kWarpSize * kWarpSize; size > 0; size -= kWarpSize) {
      const int block = std::min(size, limit);
      const size_t shared = blockSizeToDynamicSMemSize != nullptr
                                ? blockSizeToDynamicSMemSize(block)
                                : dynamicSMemSize;
      const int blocks = BlocksPerSm(f.info(), block, shared);
      if (blocks * block <= best_threads) continue;
      best_threads = blocks * block;
      *blockSize = block;
      *minGridSize = blocks * SmCount();
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuOccupancyMaxPotentialBlockSize(int* minGridSize, int* blockSize, CUfunction func,
                                          CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                          size_t dynamicSMemSize, int blockSizeLimit) {
  return emu::cuOccupancyMaxPotentialBlockSizeWithFlags(
      minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize, blockSizeLimit, 0);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* dynamicSmemSize, CUfunction func,
                                                 int numBlocks, int blockSize) {
  return WithFunction(func, [&](Function& f) {
    const int per_block = kSharedPerSm / numBlocks / 128 * 128 - kSharedReserved;
    const int room =
        std::min(per_block, kSharedPerBlockOptIn) - static_cast<int>(f.info().static_shared_bytes);
    if (room < 0 || BlocksPerSm(f.info(), blockSize, 0) < numBlocks)
      return CUDA_ERROR_INVALID_VALUE;
    *dynamicSmemSize = std::min(static_cast<uint64_t>(room), MaxDynamicShared(f.info(), *f.state));
    return CUDA_SUCCESS;
  });
}

// The device has no clusters, so it runs none of any size.
CUresult cuOccupancyMaxPotentialClusterSize(int*, CUfunction func, const CUlaunchConfig*) {
  return WithFunction(func, [](Function&) { return CUDA_ERROR_INVALID_CLUSTER_SIZE; });
}

CUresult cuOccupancyMaxActiveClusters(int*, CUfunction func, const CUlaunchConfig*) {
  return WithFunction(func, [](Function&) { return CUDA_ERROR_INVALID_CLUSTER_SIZE; });
}

}  // namespace rgpu::emu
