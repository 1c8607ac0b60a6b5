#include "rgpu_client/shim/launch.h"

#include <string.h>

#include <algorithm>

namespace rgpu::shim {
namespace {

// Reads `extra`: pairs of key and value, ended by CU_LAUNCH_PARAM_END.
CUresult PackExtra(const Function& function, void** extra, PackedParams* packed) {
  void* const end = reinterpret_cast<void*>(0x00);      // CU_LAUNCH_PARAM_END
  void* const pointer = reinterpret_cast<void*>(0x01);  // CU_LAUNCH_PARAM_BUFFER_POINTER
  void* const size = reinterpret_cast<void*>(0x02);     // CU_LAUNCH_PARAM_BUFFER_SIZE
  const void* data = nullptr;
  size_t bytes = 0;
  for (void** pair = extra; *pair != end; pair += 2) {
    if (pair[0] == pointer) {
      data = pair[1];
    } else if (pair[0] == size && pair[1] != nullptr) {
      bytes = *static_cast<const size_t*>(pair[1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  const uint32_t wanted = function.param_bytes;
  if (wanted > 0 && (data == nullptr || bytes < wanted)) return CUDA_ERROR_INVALID_VALUE;
  *packed = {data, wanted};
  return CUDA_SUCCESS;
}

// The error for a block of more threads than the function allows. The bound,
// CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, comes from .maxntid or from the registers, and drivers
// return a different error for each.
CUresult TooManyThreads(const Function& function, uint64_t threads, unsigned registers) {
  constexpr uint64_t kWarp = 32;
  constexpr uint64_t kGranule = 256;  // a warp gets registers in multiples of this
  const int own = function.attributes[CU_FUNC_ATTRIBUTE_NUM_REGS].load();
  const uint64_t of_warp =
      (static_cast<uint64_t>(std::max(own, 0)) * kWarp + kGranule - 1) / kGranule * kGranule;
  const uint64_t wanted = of_warp * ((threads + kWarp - 1) / kWarp);
  return registers > 0 && wanted > registers ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
                                             : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult CheckGeometry(const Geometry& geometry, const Function& function,
                       const LaunchLimits& limits) {
  uint64_t threads = 1;
  for (size_t i = 0; i < 3; ++i) {
    if (geometry.grid[i] == 0 || geometry.grid[i] > limits.grid[i]) return CUDA_ERROR_INVALID_VALUE;
    if (geometry.block[i] == 0 || geometry.block[i] > limits.block[i]) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    threads *= geometry.block[i];
  }
  if (threads > limits.threads) return CUDA_ERROR_INVALID_VALUE;
  const int own = function.attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK].load();
  if (own > 0 && threads > static_cast<unsigned>(own))
    return TooManyThreads(function, threads, limits.registers);
  const auto& required = function.required_block;
  if (required[0] != 0 && !std::ranges::equal(required, geometry.block)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int fixed = function.attributes[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES].load();
  const int asked = function.attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES].load();
  const uint64_t usual = limits.shared_bytes -
                         std::min(static_cast<unsigned>(std::max(fixed, 0)), limits.shared_bytes);
  const uint64_t most = std::max<uint64_t>(usual, static_cast<uint64_t>(std::max(asked, 0)));
  return geometry.shared_bytes > most ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult PackParams(const Function& function, void** kernelParams, void** extra,
                    std::vector<uint8_t>* buffer, PackedParams* packed) {
  if (kernelParams != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!function.has_layout) return CUDA_ERROR_INVALID_IMAGE;
  if (extra != nullptr) return PackExtra(function, extra, packed);
  *packed = {};
  if (function.params.empty()) return CUDA_SUCCESS;
  if (kernelParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  buffer->assign(function.param_bytes, 0);
  for (size_t i = 0; i < function.params.size(); ++i) {
    const Param& param = function.params[i];
    if (kernelParams[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    memcpy(buffer->data() + param.offset, kernelParams[i], param.bytes);
  }
  *packed = {buffer->data(), function.param_bytes};
  return CUDA_SUCCESS;
}

}  // namespace rgpu::shim
