// Calls cuLaunch*, and the oldest launch calls, which keep shape and parameters in the function.
#include <cstring>

#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/function.h"
#include "rgpu_emu/device/graph_capture.h"
#include "rgpu_emu/device/launch.h"

namespace rgpu::emu {
namespace {

// Finds the stream, and the function in the stream's context.
CUresult FindBoth(CUfunction f, CUstream operand, std::shared_ptr<Function>* function,
                  std::shared_ptr<Stream>* stream) {
  if (f == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUresult found = FindStream(operand, stream);
  if (found != CUDA_SUCCESS) return found;
  found = FindFunctionIn((*stream)->context(), f, function);
  if (found != CUDA_SUCCESS) return found;
  return (*function)->context() == (*stream)->context().get() ? CUDA_SUCCESS
                                                              : CUDA_ERROR_INVALID_HANDLE;
}

CUresult LaunchOn(CUfunction f, CUstream operand, const LaunchShape& shape, void** kernel_params,
                  void** extra, const graph::Attributes& attributes = {}) {
  std::shared_ptr<Function> function;
  std::shared_ptr<Stream> stream;
  CUresult result = FindBoth(f, operand, &function, &stream);
  if (result == CUDA_SUCCESS) result = CheckShape(*function, shape);
  std::vector<uint8_t> params;
  if (result == CUDA_SUCCESS) result = PackParams(function->info(), kernel_params, extra, &params);
  if (result != CUDA_SUCCESS) return result;
  return PushLaunch(function, stream, shape, std::move(params), attributes);
}

bool IsOne(const CUlaunchAttributeValue& value) {
  return value.clusterDim.x == 1 && value.clusterDim.y == 1 && value.clusterDim.z == 1;
}

}  // namespace

CUresult ApplyAttribute(const CUlaunchAttribute& attribute, LaunchShape* shape) {
  switch (attribute.id) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      shape->cooperative = attribute.value.cooperative != 0;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
      return IsOne(attribute.value) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CLUSTER_SIZE;
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    // Overlap is allowed, but not promised.
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

namespace {

// Writes `bytes` parameter bytes at `offset` of the function's own buffer.
CUresult PutLegacy(CUfunction handle, int offset, const void* data, size_t bytes) {
  std::shared_ptr<Function> function;
  const CUresult found = FindFunction(handle, &function);
  if (found != CUDA_SUCCESS) return found;
  if (offset < 0 || data == nullptr || bytes > kMaxParamBytes) return CUDA_ERROR_INVALID_VALUE;
  const auto at = static_cast<size_t>(offset);
  if (at + bytes > kMaxParamBytes) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(function->legacy.mutex);
  if (function->legacy.params.size() < at + bytes) function->legacy.params.resize(at + bytes);
  std::memcpy(function->legacy.params.data() + at, data, bytes);
  return CUDA_SUCCESS;
}

CUresult LaunchLegacy(CUfunction handle, int width, int height, CUstream operand) {
  if (width <= 0 || height <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Function> function;
  std::shared_ptr<Stream> stream;
  CUresult result = FindBoth(handle, operand, &function, &stream);
  if (result != CUDA_SUCCESS) return result;
  LaunchShape shape;
  std::vector<uint8_t> params;
  {
    const std::lock_guard lock(function->legacy.mutex);
    std::copy(function->legacy.block.begin(), function->legacy.block.end(), shape.block);
    shape.dynamic_shared = function->legacy.shared;
    params = function->legacy.params;
  }
  shape.grid[0] = static_cast<uint32_t>(width);
  shape.grid[1] = static_cast<uint32_t>(height);
  result = CheckShape(*function, shape);
  if (result != CUDA_SUCCESS) return result;
  params.resize(function->info().param_bytes);
  return PushLaunch(function, stream, shape, std::move(params));
}

}  // namespace

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                        unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                        unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                        void** kernelParams, void** extra) {
  const LaunchShape shape{
      {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes, false};
  return LaunchOn(f, hStream, shape, kernelParams, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
                          void** extra) {
  if (config->numAttrs != 0 && config->attrs == nullptr) return CUDA_ERROR_INVALID_VALUE;
  LaunchShape shape{{config->gridDimX, config->gridDimY, config->gridDimZ},
                    {config->blockDimX, config->blockDimY, config->blockDimZ},
                    config->sharedMemBytes,
                    false};
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUresult applied = ApplyAttribute(config->attrs[i], &shape);
    if (applied != CUDA_SUCCESS) return applied;
  }
  if (!Graphs().captures.active()) return LaunchOn(f, config->hStream, shape, kernelParams, extra);
  return LaunchOn(f, config->hStream, shape, kernelParams, extra, graph::NodeAttributes(*config));
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                   unsigned int gridDimZ, unsigned int blockDimX,
                                   unsigned int blockDimY, unsigned int blockDimZ,
                                   unsigned int sharedMemBytes, CUstream hStream,
                                   void** kernelParams) {
  const LaunchShape shape{
      {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes, true};
  return LaunchOn(f, hStream, shape, kernelParams, nullptr);
}

CUresult cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z) {
  std::shared_ptr<Function> function;
  const CUresult found = FindFunction(hfunc, &function);
  if (found != CUDA_SUCCESS) return found;
  if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(function->legacy.mutex);
  function->legacy.block = {static_cast<uint32_t>(x), static_cast<uint32_t>(y),
                            static_cast<uint32_t>(z)};
  return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes) {
  std::shared_ptr<Function> function;
  const CUresult found = FindFunction(hfunc, &function);
  if (found != CUDA_SUCCESS) return found;
  const std::lock_guard lock(function->legacy.mutex);
  function->legacy.shared = bytes;
  return CUDA_SUCCESS;
}

CUresult cuParamSetSize(CUfunction hfunc, unsigned int numbytes) {
  std::shared_ptr<Function> function;
  const CUresult found = FindFunction(hfunc, &function);
  if (found != CUDA_SUCCESS) return found;
  if (numbytes > kMaxParamBytes) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(function->legacy.mutex);
  function->legacy.params.resize(numbytes);
  return CUDA_SUCCESS;
}

CUresult cuParamSeti(CUfunction hfunc, int offset, unsigned int value) {
  return PutLegacy(hfunc, offset, &value, sizeof(value));
}

CUresult cuParamSetf(CUfunction hfunc, int offset, float value) {
  return PutLegacy(hfunc, offset, &value, sizeof(value));
}

CUresult cuParamSetv(CUfunction hfunc, int offset, void* ptr, unsigned int numbytes) {
  return PutLegacy(hfunc, offset, ptr, numbytes);
}

CUresult cuLaunch(CUfunction f) { return LaunchLegacy(f, 1, 1, nullptr); }

CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height) {
  return LaunchLegacy(f, grid_width, grid_height, nullptr);
}

CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream) {
  return LaunchLegacy(f, grid_width, grid_height, hStream);
}

}  // namespace rgpu::emu
