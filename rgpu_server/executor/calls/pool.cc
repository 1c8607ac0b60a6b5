// Handlers: memory pools. A pool is charged for what it holds from the device: an upper bound
// before the driver is asked, and the driver's own counter afterwards.
#include "gen/dispatch.gen.h"
#include "rgpu_server/executor/allocations.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/round.h"

namespace rgpu::exec {

namespace {

constexpr uint64_t kPoolGranule = 2U << 20;  // unit in which a pool takes device memory

// A pool's own maximum is what the program asked for. The lease's limit is not used, because it may
// change at any time.
CUresult MakePool(Executor& executor, uint64_t id, uint64_t max_bytes,
                  std::shared_ptr<Pool>* made) {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  props.location.id = executor.device();
  props.maxSize = max_bytes;
  auto pool = std::make_shared<Pool>();
  pool->id = id;
  pool->max_bytes = max_bytes;
  const CUresult result = executor.driver()->cuMemPoolCreate(&pool->handle, &props);
  if (result == CUDA_SUCCESS) *made = std::move(pool);
  return result;
}

// The default pool of the client is one of our pools, created at first use.
CUresult FindPool(Executor& executor, uint64_t id, std::shared_ptr<Pool>* pool) {
  const CUresult result = executor.objects().pools.Share(id, pool);
  if (result == CUDA_SUCCESS && (*pool)->destroyed) return CUDA_ERROR_INVALID_HANDLE;
  if (result != CUDA_ERROR_INVALID_HANDLE || id != kDefaultPool) return result;
  const CUresult made = MakePool(executor, id, 0, pool);
  if (made == CUDA_SUCCESS) executor.objects().pools.Add(kDefaultPool, *pool);
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

CUresult TakeFrom(Executor& executor, const Target& target, Pool& pool, uint64_t bytes,
                  CUdeviceptr* dptr) {
  const Driver& driver = executor.driver();
  // The call is stream-ordered and does not wait for the device, so the lock stays held.
  const MemoryAccount::Change change(executor.memory());
  if (target.context->dead) return CUDA_ERROR_INVALID_CONTEXT;  // Change may have waited
  return executor.order().Issue(*target.stream, {}, [&](CUstream stream) {
    return driver->cuMemAllocFromPoolAsync(dptr, bytes, pool.handle, stream);
  });
}

// Allocates from what the pool holds already. Only the driver knows whether that is enough: if the
// pool grew past the limit, the allocation is undone.
CUresult Reuse(Executor& executor, const Target& target, const std::shared_ptr<Pool>& pool,
               uint64_t bytes, CUdeviceptr* dptr) {
  Ledger& ledger = executor.ledger();
  executor.memory().ReconcilePool(*pool);
  const uint64_t before = pool->charged_bytes;
  if (bytes > before || ledger.used() > ledger.limit()) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = TakeFrom(executor, target, *pool, bytes, dptr);
  if (result != CUDA_SUCCESS) return result;
  executor.memory().ReconcilePool(*pool);
  if (pool->charged_bytes <= before || ledger.used() <= ledger.limit()) return CUDA_SUCCESS;
  const Driver& driver = executor.driver();
  const uint64_t grown = pool->charged_bytes - before;
  ledger.AddRefused(grown);
  executor.order().Issue(*target.stream, {},
                         [&](CUstream stream) { return driver->cuMemFreeAsync(*dptr, stream); });
  executor.reaper().Add(
      target.context, [&driver, pool] { driver->cuMemPoolTrimTo(pool->handle, 0); },
      [&executor, pool, grown] {
        executor.memory().ReconcilePool(*pool);
        executor.ledger().SubRefused(grown);
      },
      grown);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// True if the pool's own maximum leaves no room for so many more bytes. Drivers round the maximum
// up to the unit in which a pool grows.
bool IsAtItsMaximum(const Pool& pool, uint64_t bytes) {
  uint64_t most = 0;
  if (pool.max_bytes == 0 || !RoundUp(pool.max_bytes, kPoolGranule, &most)) return false;
  return bytes > most || pool.charged_bytes > most - bytes;
}

// Allocates; the pool may grow by at most `growth` bytes.
CUresult Grow(Executor& executor, const Target& target, Pool& pool, uint64_t bytes, uint64_t growth,
              CUdeviceptr* dptr) {
  pool.charged_bytes += growth;  // the caller has charged them
  const CUresult result = TakeFrom(executor, target, pool, bytes, dptr);
  executor.memory().ReconcilePool(pool);
  return result;
}

CUresult Allocate(Executor& executor, const Target& target, const std::shared_ptr<Pool>& pool,
                  uint64_t bytes, CUdeviceptr* dptr) {
  uint64_t growth = 0;
  if (!RoundUp(bytes, kPoolGranule, &growth)) return CUDA_ERROR_OUT_OF_MEMORY;
  const bool at_maximum = IsAtItsMaximum(*pool, bytes);
  if (growth > executor.ledger().limit() && !at_maximum) return executor.memory().Charge(growth);
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (!at_maximum && executor.ledger().TryCharge(growth)) {
    result = Grow(executor, target, *pool, bytes, growth, dptr);
  } else {
    result = Reuse(executor, target, pool, bytes, dptr);
  }
  if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
  // The lease, the device or the pool is full: try once more after pending frees.
  executor.reaper().WaitAll();
  executor.memory().ReconcilePools();
  if (IsAtItsMaximum(*pool, bytes)) {
    result = Reuse(executor, target, pool, bytes, dptr);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) executor.memory().PoolIsFull(*pool, bytes);
    return result;
  }
  if (const CUresult charged = executor.memory().Charge(growth); charged != CUDA_SUCCESS)
    return charged;
  result = Grow(executor, target, *pool, bytes, growth, dptr);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) executor.memory().DeviceIsFull(growth);
  return result;
}

// Streams of any context may have freed to the pool, so wait for all of them.
void DestroyPool(Executor& executor, const std::shared_ptr<Pool>& pool) {
  const Driver& driver = executor.driver();
  std::vector<std::shared_ptr<Point>> fences;
  executor.EverythingInAll(false, &fences);
  executor.reaper().AddBehind(
      std::move(fences), nullptr,
      [&driver, pool] { pool->gone = driver->cuMemPoolDestroy(pool->handle) == CUDA_SUCCESS; },
      [&executor, pool] {
        if (pool->gone) executor.ledger().Release(pool->charged_bytes);
      },
      pool->charged_bytes);
}

}  // namespace

CUresult Run(Executor& executor, const Command& command, const rgpuPoolCreate_Request& request,
             rgpuPoolCreate_Reply*) {
  std::shared_ptr<Context> context;
  CUresult result = executor.Enter(command, &context);
  if (result != CUDA_SUCCESS) return result;
  if (request.device != 0) return CUDA_ERROR_INVALID_DEVICE;
  Table<Pool>::Reservation place(executor.objects().pools, request.pool);
  if (place.result() != CUDA_SUCCESS) return place.result();
  std::shared_ptr<Pool> pool;
  result = MakePool(executor, request.pool, request.max_bytes, &pool);
  if (result == CUDA_SUCCESS) place.Add(std::move(pool));
  return result;
}

CUresult Run(Executor& executor, const Command&, const rgpuPoolDestroy_Request& request,
             rgpuPoolDestroy_Reply*) {
  if (request.pool == kDefaultPool) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Pool> pool;
  const CUresult result = executor.objects().pools.Take(request.pool, &pool);
  if (result != CUDA_SUCCESS) return result;
  if (pool->destroyed) {
    executor.objects().pools.Add(request.pool, std::move(pool));
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (pool->allocations == 0) {
    DestroyPool(executor, pool);
    return CUDA_SUCCESS;
  }
  // As with the driver, its allocations stay valid and charged until they are freed.
  static uint64_t last_id = kDestroyedPools;
  pool->destroyed = true;
  pool->id = ++last_id;
  executor.objects().pools.Add(pool->id, pool);
  return CUDA_SUCCESS;
}

void LeavePool(Executor& executor, const std::shared_ptr<Pool>& pool) {
  std::shared_ptr<Pool> taken;
  if (--pool->allocations != 0 || !pool->destroyed) return;
  if (executor.objects().pools.Take(pool->id, &taken) == CUDA_SUCCESS) DestroyPool(executor, pool);
}

CUresult Run(Executor& executor, const Command& command, const rgpuPoolTrim_Request& request,
             rgpuPoolTrim_Reply*) {
  std::shared_ptr<Context> context;
  CUresult result = executor.Enter(command, &context);
  if (result != CUDA_SUCCESS) return result;
  std::shared_ptr<Pool> pool;
  result = FindPool(executor, request.pool, &pool);
  if (result != CUDA_SUCCESS) return result;
  const Driver& driver = executor.driver();
  executor.reaper().Add(
      context,
      [&driver, pool, keep = request.keep] { driver->cuMemPoolTrimTo(pool->handle, keep); },
      [&executor, pool] { executor.memory().ReconcilePool(*pool); });
  return CUDA_SUCCESS;
}

CUresult Run(Executor& executor, const Command& command,
             const rgpuPoolSetAttribute_Request& request, rgpuPoolSetAttribute_Reply*) {
  std::shared_ptr<Context> context;
  CUresult result = executor.Enter(command, &context);
  if (result != CUDA_SUCCESS) return result;
  std::shared_ptr<Pool> pool;
  result = FindPool(executor, request.pool, &pool);
  if (result != CUDA_SUCCESS) return result;
  // Policies are int, thresholds and counters cuuint64_t; eight little-endian bytes serve both.
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
  result = FindPool(executor, request.pool, &pool);
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
  result = FindPool(executor, request.pool, &pool);
  if (result != CUDA_SUCCESS) return result;
  if (executor.objects().ranges.full()) return CUDA_ERROR_OUT_OF_MEMORY;
  CUdeviceptr dptr = 0;
  result = Allocate(executor, target, pool, request.bytes, &dptr);
  if (result != CUDA_SUCCESS) return result;
  reply->dptr = dptr;
  ++pool->allocations;
  return executor.objects().ranges.Add(
      dptr, {request.bytes, Range::Kind::kPool, target.context->id, std::move(pool)});
}

CUresult Run(Executor& executor, const Command& command, const rgpuPoolFree_Request& request,
             rgpuPoolFree_Reply*) {
  Target target;
  CUresult result = executor.Find(command, request.stream, &target);
  if (result != CUDA_SUCCESS) return result;
  Range* found = executor.objects().ranges.Find(request.dptr);
  if (found == nullptr || !found->may_be_freed()) return CUDA_ERROR_INVALID_VALUE;
  Range range;
  executor.objects().ranges.Take(request.dptr, &range);
  const Driver& driver = executor.driver();
  if (range.kind == Range::Kind::kPlain) {
    FreePlain(executor, command, target.context, request.dptr, range);
    return CUDA_SUCCESS;
  }
  result = executor.order().Issue(*target.stream, {}, [&](CUstream stream) {
    return driver->cuMemFreeAsync(request.dptr, stream);
  });
  executor.memory().CountFree(*range.pool);
  LeavePool(executor, range.pool);
  return result;
}

}  // namespace rgpu::exec
