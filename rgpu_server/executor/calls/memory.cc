// Handlers: plain device memory. It is charged before the driver is asked, and released after the
// driver has freed it.
#include <algorithm>
#include <functional>
#include <utility>

#include "gen/dispatch.gen.h"
#include "rgpu_server/executor/allocations.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/round.h"

namespace rgpu::exec {

namespace {

constexpr uint64_t kWidestPitch = 1024;  // no device rounds rows up to a larger multiple

// Allocates device memory of at most `bytes` and charges for it. `allocate(CUdeviceptr*, uint64_t*
// taken)` reports the real size.
template <typename Allocate>
CUresult AllocateCharged(Executor& executor, const Context& context, uint64_t bytes,
                         CUdeviceptr* dptr, Allocate allocate) {
  uint64_t bound = 0;
  if (!RoundUp(bytes, executor.memory().granules().bytes(), &bound))
    return CUDA_ERROR_OUT_OF_MEMORY;
  if (executor.objects().ranges.full()) return CUDA_ERROR_OUT_OF_MEMORY;
  if (executor.memory().Charge(bound) != CUDA_SUCCESS) return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t taken = 0;
  const CUresult result = AllocateTwice(executor, bound, [&] { return allocate(dptr, &taken); });
  if (result != CUDA_SUCCESS) {
    executor.ledger().Release(bound);
    return result;
  }
  executor.ledger().Correct(bound, executor.memory().granules().Add(*dptr, taken));
  return executor.objects().ranges.Add(*dptr, {taken, Range::Kind::kPlain, context.id});
}

CUresult AllocatePlain(Executor& executor, const Command& command, uint64_t bytes,
                       uint64_t* address) {
  std::shared_ptr<Context> context;
  const CUresult result = executor.Enter(command, &context);
  if (result != CUDA_SUCCESS) return result;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const Driver& driver = executor.driver();
  CUdeviceptr dptr = 0;
  const CUresult made =
      AllocateCharged(executor, *context, bytes, &dptr, [&](CUdeviceptr* out, uint64_t* taken) {
        *taken = bytes;
        return driver->cuMemAlloc_v2(out, bytes);
      });
  *address = dptr;
  return made;
}

}  // namespace

CUresult Run(Executor& executor, const Command& command, const rgpuMemAlloc_Request& request,
             rgpuMemAlloc_Reply* reply) {
  return AllocatePlain(executor, command, request.bytes, &reply->dptr);
}

CUresult Run(Executor& executor, const Command& command, const rgpuMemAllocAhead_Request& request,
             rgpuMemAllocAhead_Reply* reply) {
  MemoryCredit& credit = executor.memory().credit();
  credit.Returned(request.returned);
  const CUresult result = AllocatePlain(executor, command, request.bytes, &reply->dptr);
  if (result == CUDA_SUCCESS) credit.Grant(request.wish);
  const CreditBook& book = credit.book();
  reply->granted = book.granted();
  reply->window = book.window().base;
  reply->window_bytes = book.window().bytes;
  reply->granule = CreditBook::kGranule;
  reply->gap = CreditBook::kGap;
  return result;
}

// The client may use the addresses already. So it must never come here that the lease or the device
// has no memory for them: both have given it with the credit.
CUresult Run(Executor& executor, const Command& command, const rgpuMemBack_Request& request,
             rgpuMemBack_Reply*) {
  MemoryCredit& credit = executor.memory().credit();
  const uint64_t charged = credit.Cut(request.dptr, request.bytes);
  if (charged == 0) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Context> context;
  CUresult result = executor.Enter(command, &context);
  if (result == CUDA_SUCCESS && Ranges::full()) result = CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS) result = credit.Back(request.dptr, request.bytes);
  if (result != CUDA_SUCCESS) {
    credit.Forfeit(request.dptr, charged);
    return result;
  }
  executor.memory().granules().Add(request.dptr, request.bytes);
  Range range{request.bytes, Range::Kind::kPlain, context->id};
  range.backed = true;
  return executor.objects().ranges.Add(request.dptr, std::move(range));
}

CUresult Run(Executor& executor, const Command& command, const rgpuMemAllocPitch_Request& request,
             rgpuMemAllocPitch_Reply* reply) {
  std::shared_ptr<Context> context;
  CUresult result = executor.Enter(command, &context);
  if (result != CUDA_SUCCESS) return result;
  if (request.width == 0 || request.height == 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t bound = 0;
  if (!RoundUp(request.width, kWidestPitch, &bound) ||
      __builtin_mul_overflow(bound, request.height, &bound)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const Driver& driver = executor.driver();
  CUdeviceptr dptr = 0;
  size_t pitch = 0;
  result =
      AllocateCharged(executor, *context, bound, &dptr, [&](CUdeviceptr* out, uint64_t* taken) {
        const CUresult made = driver->cuMemAllocPitch_v2(out, &pitch, request.width, request.height,
                                                         request.element_bytes);
        *taken = pitch * request.height;
        return made;
      });
  reply->dptr = dptr;
  reply->pitch = pitch;
  return result;
}

namespace {

// Frees once the work of both contexts is complete: the driver would wait for it, and keep the
// memory until then.
void Free(Executor& executor, const std::shared_ptr<Context>& context, uint64_t base,
          const Range& range, std::function<void()> release, uint64_t frees) {
  std::vector<std::shared_ptr<Point>> fences;
  executor.order().EverythingIn(*context, false, &fences);
  std::shared_ptr<Context> owner;
  if (executor.objects().contexts.Share(range.context, &owner) != CUDA_SUCCESS) owner = context;
  if (owner != context && executor.MakeCurrent(*owner) == CUDA_SUCCESS) {
    executor.order().EverythingIn(*owner, false, &fences);
  }
  const Driver& driver = executor.driver();
  executor.reaper().AddBehind(
      std::move(fences), owner, [&driver, base] { driver->cuMemFree_v2(base); }, std::move(release),
      frees);
}

}  // namespace

void FreePlain(Executor& executor, const Command& command, const std::shared_ptr<Context>& context,
               uint64_t base, const Range& range) {
  const uint64_t bytes = range.bytes;
  const std::shared_ptr<Export> exported =
      range.exported ? executor.exports().FindMemory(base) : nullptr;
  if (exported != nullptr) executor.exports().Retire(exported);
  const uint64_t seq = command.header.seq;
  if (range.backed) executor.memory().credit().Freeing(seq);
  const auto release = [&executor, base, bytes, seq, exported, backed = range.backed] {
    const uint64_t charged = executor.memory().granules().Remove(base, bytes);
    // Memory that other sessions have open is no credit yet.
    if (backed) executor.memory().credit().Freed(seq, base, exported == nullptr ? charged : 0);
    if (exported != nullptr) return executor.exports().Freed(exported, charged);
    if (backed) return;
    executor.ledger().Release(charged);
  };
  Free(executor, context, base, range, release, bytes);
}

CUresult Run(Executor& executor, const Command& command, const rgpuMemFree_Request& request,
             rgpuMemFree_Reply*) {
  std::shared_ptr<Context> context;
  CUresult result = executor.Enter(command, &context);
  if (result != CUDA_SUCCESS) return result;
  Range* found = executor.objects().ranges.Find(request.dptr);
  if (found == nullptr || !found->may_be_freed()) return CUDA_ERROR_INVALID_VALUE;
  Range range;
  executor.objects().ranges.Take(request.dptr, &range);
  if (range.kind == Range::Kind::kPlain) {
    FreePlain(executor, command, context, request.dptr, range);
    return CUDA_SUCCESS;
  }
  const auto release = [&executor, pool = range.pool] {
    // The free came behind all work, so no wait has to cover it.
    executor.memory().TrimToThreshold(*pool);
    LeavePool(executor, pool);
  };
  Free(executor, context, request.dptr, range, release, 0);
  return CUDA_SUCCESS;
}

// The program sees the lease's memory, which other processes of the lease use too.
CUresult Run(Executor& executor, const Command& command, const rgpuMemGetInfo_Request&,
             rgpuMemGetInfo_Reply* reply) {
  std::shared_ptr<Context> context;
  CUresult result = executor.Enter(command, &context);
  if (result != CUDA_SUCCESS) return result;
  executor.reaper().WaitForComplete();
  size_t free = 0;
  size_t total = 0;
  result = executor.driver()->cuMemGetInfo_v2(&free, &total);
  if (result != CUDA_SUCCESS) return result;
  executor.objects().pools.ForEach(
      [&](const auto& pool) { executor.memory().ReconcilePool(*pool); });
  // The limit may change at any time, so it is read once. A lease above its limit has nothing free.
  reply->total = std::min<uint64_t>(executor.ledger().limit(), total);
  // Credit that nobody has used counts as free: whoever needs the memory gets it.
  const uint64_t used = std::min(executor.ledger().allocated(), reply->total);
  reply->free = std::min<uint64_t>(reply->total - used, free + executor.memory().credit().uncut());
  return CUDA_SUCCESS;
}

}  // namespace rgpu::exec
