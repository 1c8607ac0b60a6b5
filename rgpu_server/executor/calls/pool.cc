// Memory pools.  A pool's charge is what it holds from the device: an upper bound before the driver
// is asked, reconciled with the driver's own counter afterwards.
#include <algorithm>

#include "gen/dispatch.gen.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/round.h"

namespace rgpu::exec {

namespace {

constexpr uint64_t kPoolGranule = 2U << 20;  // of what a pool takes from the device

CUresult MakePool(Executor& executor, const std::shared_ptr<Context>& context, uint64_t max_bytes,
                  std::shared_ptr<Pool>* made) {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  props.location.id = context->device;
  const uint64_t limit = executor.ledger().limit();
  props.maxSize = max_bytes == 0 ? limit : std::min(max_bytes, limit);
  auto pool = std::make_shared<Pool>();
  pool->context = context;
  const CUresult result = executor.driver()->cuMemPoolCreate(&pool->handle, &props);
  if (result == CUDA_SUCCESS) *made = std::move(pool);
  return result;
}

// The default pool is a capped one of ours, made when it is first used.
CUresult FindPool(Executor& executor, const std::shared_ptr<Context>& context, uint64_t id,
                  std::shared_ptr<Pool>* pool) {
  const CUresult result = executor.pools().Share(id, pool);
  if (result != CUDA_ERROR_INVALID_HANDLE || id != kDefaultPool) return result;
  const CUresult made = MakePool(executor, context, 0, pool);
  if (made == CUDA_SUCCESS) executor.pools().Add(kDefaultPool, *pool);
  return made;
}

CUresult PoolCounter(Executor& executor, const Pool& pool, CUmemPool_attribute attribute,
                     uint64_t* value) {
  cuuint64_t counter = 0;
  const CUresult result =
      executor.driver()->cuMemPoolGetAttribute(pool.handle, attribute, &counter);
  *value = counter;
  return result;
}

// Charges the most that an allocation of `bytes` can make the pool take from the device.
CUresult ChargePool(Executor& executor, Pool& pool, uint64_t bytes) {
  uint64_t reserved = 0;
  uint64_t used = 0;
  CUresult result = PoolCounter(executor, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved);
  if (result == CUDA_SUCCESS) {
    result = PoolCounter(executor, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
  }
  if (result != CUDA_SUCCESS) return result;
  uint64_t growth = 0;
  if (used + bytes > reserved && !RoundUp(bytes, kPoolGranule, &growth)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  uint64_t bound = 0;
  if (__builtin_add_overflow(std::max(reserved, pool.charged_bytes), growth, &bound)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  result = executor.Charge(bound - pool.charged_bytes);
  // Charge may have waited, and pools may have shrunk meanwhile: the bound holds all the more.
  if (result == CUDA_SUCCESS) pool.charged_bytes += bound - std::min(bound, pool.charged_bytes);
  return result;
}

}  // namespace

CUresult Run(Executor& executor, const Command& command, const rgpuPoolCreate_Request& request,
             rgpuPoolCreate_Reply*) {
  std::shared_ptr<Context> context;
  CUresult result = executor.Enter(command, &context);
  if (result != CUDA_SUCCESS) return result;
  if (request.device != 0) return CUDA_ERROR_INVALID_DEVICE;
  result = executor.pools().CanAdd(request.pool);
  if (result != CUDA_SUCCESS) return result;
  std::shared_ptr<Pool> pool;
  result = MakePool(executor, context, request.max_bytes, &pool);
  if (result == CUDA_SUCCESS) executor.pools().Add(request.pool, std::move(pool));
  return result;
}

CUresult Run(Executor& executor, const Command&, const rgpuPoolDestroy_Request& request,
             rgpuPoolDestroy_Reply*) {
  if (request.pool == kDefaultPool) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Pool> pool;
  const CUresult result = executor.pools().Take(request.pool, &pool);
  if (result != CUDA_SUCCESS) return result;
  executor.ranges().EraseIf([&](const Range& range) { return range.pool == pool; });
  const Driver& driver = executor.driver();
  executor.reaper().Add(
      pool->context, [&driver, pool] { driver->cuMemPoolDestroy(pool->handle); },
      [&executor, pool] { executor.ledger().Release(pool->charged_bytes); });
  return CUDA_SUCCESS;
}

CUresult Run(Executor& executor, const Command& command, const rgpuPoolTrim_Request& request,
             rgpuPoolTrim_Reply*) {
  std::shared_ptr<Context> context;
  CUresult result = executor.Enter(command, &context);
  if (result != CUDA_SUCCESS) return result;
  std::shared_ptr<Pool> pool;
  result = FindPool(executor, context, request.pool, &pool);
  if (result != CUDA_SUCCESS) return result;
  const Driver& driver = executor.driver();
  executor.reaper().Add(
      pool->context,
      [&driver, pool, keep = request.keep] { driver->cuMemPoolTrimTo(pool->handle, keep); },
      [&executor, pool] { executor.ReconcilePool(*pool); });
  return CUDA_SUCCESS;
}

CUresult Run(Executor& executor, const Command& command,
             const rgpuPoolSetAttribute_Request& request, rgpuPoolSetAttribute_Reply*) {
  std::shared_ptr<Context> context;
  CUresult result = executor.Enter(command, &context);
  if (result != CUDA_SUCCESS) return result;
  std::shared_ptr<Pool> pool;
  result = FindPool(executor, context, request.pool, &pool);
  if (result != CUDA_SUCCESS) return result;
  // Policies are int, thresholds and counters cuuint64_t: eight bytes, little-endian, serve both.
  cuuint64_t value = request.value;
  return executor.driver()->cuMemPoolSetAttribute(
      pool->handle, static_cast<CUmemPool_attribute>(request.attribute), &value);
}

CUresult Run(Executor& executor, const Command& command,
             const rgpuPoolGetAttribute_Request& request, rgpuPoolGetAttribute_Reply* reply) {
  std::shared_ptr<Context> context;
  CUresult result = executor.Enter(command, &context);
  if (result != CUDA_SUCCESS) return result;
  std::shared_ptr<Pool> pool;
  result = FindPool(executor, context, request.pool, &pool);
  if (result != CUDA_SUCCESS) return result;
  return PoolCounter(executor, *pool, static_cast<CUmemPool_attribute>(request.attribute),
                     &reply->value);
}

CUresult Run(Executor& executor, const Command& command, const rgpuPoolAlloc_Request& request,
             rgpuPoolAlloc_Reply* reply) {
  Target target;
  CUresult result = executor.Find(command, request.stream, &target);
  if (result != CUDA_SUCCESS) return result;
  if (request.bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Pool> pool;
  result = FindPool(executor, target.context, request.pool, &pool);
  if (result != CUDA_SUCCESS) return result;
  result = ChargePool(executor, *pool, request.bytes);
  if (result != CUDA_SUCCESS) return result;
  const Driver& driver = executor.driver();
  CUdeviceptr dptr = 0;
  // Stream-ordered: it does not wait for the device, so the lock stays.
  result = executor.Issue(*target.stream, {}, [&](CUstream stream) {
    return driver->cuMemAllocFromPoolAsync(&dptr, request.bytes, pool->handle, stream);
  });
  executor.ReconcilePool(*pool);
  if (result != CUDA_SUCCESS) return result;
  reply->dptr = dptr;
  return executor.ranges().Add(
      dptr, {request.bytes, 0, Range::Kind::kPool, target.context->id, std::move(pool)});
}

CUresult Run(Executor& executor, const Command& command, const rgpuPoolFree_Request& request,
             rgpuPoolFree_Reply*) {
  Target target;
  CUresult result = executor.Find(command, request.stream, &target);
  if (result != CUDA_SUCCESS) return result;
  Range* found = executor.ranges().Find(request.dptr);
  if (found == nullptr || found->kind == Range::Kind::kGlobal) return CUDA_ERROR_INVALID_VALUE;
  Range range;
  executor.ranges().Take(request.dptr, &range);
  const Driver& driver = executor.driver();
  if (range.kind == Range::Kind::kPlain) {
    executor.reaper().Add(
        target.context, [&driver, dptr = request.dptr] { driver->cuMemFree_v2(dptr); },
        [&executor, charged = range.charged_bytes] { executor.ledger().Release(charged); });
    return CUDA_SUCCESS;
  }
  return executor.Issue(*target.stream, {}, [&](CUstream stream) {
    return driver->cuMemFreeAsync(request.dptr, stream);
  });
}

}  // namespace rgpu::exec
