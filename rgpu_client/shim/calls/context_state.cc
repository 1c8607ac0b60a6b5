// Flags, limits and preferences of contexts.
#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/here.h"

namespace rgpu::shim {
namespace {

using Hint = rgpuContextHint_Request;

CUresult PostHint(const Here& here, int32_t what, unsigned value) {
  return here.channel().Post<op_rgpuContextHint>(here.issuer(), {what, value});
}

}  // namespace

CUresult cuCtxGetFlags(unsigned int* flags) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  *flags = here.context->flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  here.context->flags = flags;
  return PostHint(here, Hint::kFlags, flags);
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  {
    const std::lock_guard lock(here.context->mutex);
    here.context->limits.erase(limit);
  }
  rgpuContextSetLimit_Reply reply;
  return here.channel().Call<op_rgpuContextSetLimit>(here.issuer(),
                                                     {static_cast<int32_t>(limit), value}, &reply);
}

CUresult cuCtxGetLimit(size_t* pvalue, CUlimit limit) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  if (limit != CU_LIMIT_STACK_SIZE) {  // not kept: the driver raises the stack size by itself
    const std::lock_guard lock(here.context->mutex);
    const auto known = here.context->limits.find(limit);
    if (known != here.context->limits.end()) {
      *pvalue = known->second;
      return CUDA_SUCCESS;
    }
  }
  rgpuContextGetLimit_Reply reply;
  const CUresult status = here.channel().Call<op_rgpuContextGetLimit>(
      here.issuer(), {static_cast<int32_t>(limit)}, &reply);
  if (status != CUDA_SUCCESS) return status;
  *pvalue = reply.value;
  const std::lock_guard lock(here.context->mutex);
  here.context->limits[limit] = reply.value;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* pconfig) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  *pconfig = static_cast<CUfunc_cache>(here.context->cache_config.load());
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  here.context->cache_config = config;
  return PostHint(here, Hint::kCacheConfig, static_cast<unsigned>(config));
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig* pConfig) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  *pConfig = static_cast<CUsharedconfig>(here.context->shared_config.load());
  return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  here.context->shared_config = config;
  return PostHint(here, Hint::kSharedMemConfig, static_cast<unsigned>(config));
}

CUresult cuCtxResetPersistingL2Cache() {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  return PostHint(here, Hint::kResetPersistingL2, 0);
}

CUresult cuCtxGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  const Device& device = *here.session->devices().Find(here.context->device);
  if (leastPriority != nullptr) *leastPriority = device.info.least_priority;
  if (greatestPriority != nullptr) *greatestPriority = device.info.greatest_priority;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam*, CUexecAffinityType) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
}

}  // namespace rgpu::shim
