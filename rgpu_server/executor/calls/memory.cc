// Device memory: charged before the driver is asked, released when the driver has let go of it.
#include <algorithm>

#include "gen/dispatch.gen.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/round.h"

namespace rgpu::exec {

namespace {

constexpr uint64_t kGranule = 512;  // of a plain allocation

// Charges `bytes`, runs `allocate(CUdeviceptr*)`, and tries once more when what is being freed is
// gone.
template <typename Allocate>
CUresult AllocateCharged(Executor& executor, uint64_t bytes, CUdeviceptr* dptr, Allocate allocate) {
  if (executor.Charge(bytes) != CUDA_SUCCESS) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = executor.Unlocked([&] { return allocate(dptr); });
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    executor.reaper().WaitAll();
    executor.ReconcilePools();
    result = executor.Unlocked([&] { return allocate(dptr); });
  }
  if (result != CUDA_SUCCESS) executor.ledger().Release(bytes);
  return result;
}

}  // namespace

CUresult Run(Executor& executor, const Command& command, const rgpuMemAlloc_Request& request,
             rgpuMemAlloc_Reply* reply) {
  std::shared_ptr<Context> context;
  CUresult result = executor.Enter(command, &context);
  if (result != CUDA_SUCCESS) return result;
  uint64_t charge = 0;
  if (request.bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!RoundUp(request.bytes, kGranule, &charge)) return CUDA_ERROR_OUT_OF_MEMORY;
  const Driver& driver = executor.driver();
  CUdeviceptr dptr = 0;
  result = AllocateCharged(executor, charge, &dptr, [&](CUdeviceptr* out) {
    return driver->cuMemAlloc_v2(out, request.bytes);
  });
  if (result != CUDA_SUCCESS) return result;
  reply->dptr = dptr;
  return executor.ranges().Add(dptr,
                               {request.bytes, charge, Range::Kind::kPlain, context->id, nullptr});
}

CUresult Run(Executor& executor, const Command& command, const rgpuMemAllocPitch_Request& request,
             rgpuMemAllocPitch_Reply* reply) {
  std::shared_ptr<Context> context;
  CUresult result = executor.Enter(command, &context);
  if (result != CUDA_SUCCESS) return result;
  // No device pitches rows wider than to a multiple of this; what is too much is given back below.
  uint64_t pitch_bound = 0;
  uint64_t charge = 0;
  if (request.width == 0 || request.height == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!RoundUp(request.width, 2 * kGranule, &pitch_bound) ||
      __builtin_mul_overflow(pitch_bound, request.height, &charge)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const Driver& driver = executor.driver();
  CUdeviceptr dptr = 0;
  size_t pitch = 0;
  result = AllocateCharged(executor, charge, &dptr, [&](CUdeviceptr* out) {
    return driver->cuMemAllocPitch_v2(out, &pitch, request.width, request.height,
                                      request.element_bytes);
  });
  if (result != CUDA_SUCCESS) return result;
  uint64_t exact = charge;
  if (RoundUp(pitch * request.height, kGranule, &exact) && exact < charge) {
    executor.ledger().Release(charge - exact);
    charge = exact;
  }
  reply->dptr = dptr;
  reply->pitch = pitch;
  return executor.ranges().Add(
      dptr, {pitch * request.height, charge, Range::Kind::kPlain, context->id, nullptr});
}

CUresult Run(Executor& executor, const Command& command, const rgpuMemFree_Request& request,
             rgpuMemFree_Reply*) {
  std::shared_ptr<Context> context;
  CUresult result = executor.Enter(command, &context);
  if (result != CUDA_SUCCESS) return result;
  Range* found = executor.ranges().Find(request.dptr);
  if (found == nullptr || found->kind == Range::Kind::kGlobal) return CUDA_ERROR_INVALID_VALUE;
  Range range;
  executor.ranges().Take(request.dptr, &range);
  const Driver& driver = executor.driver();
  executor.reaper().Add(
      context, [&driver, dptr = request.dptr] { driver->cuMemFree_v2(dptr); },
      [&executor, charged = range.charged_bytes] { executor.ledger().Release(charged); });
  return CUDA_SUCCESS;
}

// The lease's view: other processes of the lease use it too.
CUresult Run(Executor& executor, const Command& command, const rgpuMemGetInfo_Request&,
             rgpuMemGetInfo_Reply* reply) {
  std::shared_ptr<Context> context;
  CUresult result = executor.Enter(command, &context);
  if (result != CUDA_SUCCESS) return result;
  size_t free = 0;
  size_t total = 0;
  result = executor.driver()->cuMemGetInfo_v2(&free, &total);
  if (result != CUDA_SUCCESS) return result;
  const uint64_t limit = executor.ledger().limit();
  const uint64_t used = std::min(executor.ledger().used(), limit);
  reply->total = limit;
  reply->free = std::min<uint64_t>(limit - used, free);
  return CUDA_SUCCESS;
}

}  // namespace rgpu::exec
