#include "rgpu_server/executor/memory_account.h"

#include <time.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_server/executor/executor.h"

namespace rgpu::exec {

namespace {

// The unit of device memory in which allocations are charged. The emulated device gives every
// allocation its own pages. NVIDIA's driver takes small allocations from pieces of 2 MiB.
constexpr uint64_t kEmulatedGranule = 4096;
constexpr uint64_t kDeviceGranule = 2U << 20;

}  // namespace

MemoryAccount::MemoryAccount(Executor& executor, Ledger& ledger)
    : executor_(executor),
      ledger_(ledger),
      granules_(executor.driver().emulated ? kEmulatedGranule : kDeviceGranule) {}

void MemoryAccount::LeaseIsFull(uint64_t bytes) {
  shortage_.LeaseIsFull(ledger_, bytes, executor_.outbox());
}

void MemoryAccount::DeviceIsFull(uint64_t bytes) {
  shortage_.DeviceIsFull(ledger_, bytes, executor_.outbox());
}

uint64_t MemoryAccount::resident_threads() {
  if (resident_threads_ == 0) {
    int processors = 0;
    int threads = 0;
    const Driver& driver = executor_.driver();
    const CUdevice device = executor_.device();
    driver->cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    driver->cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
                                 device);
    resident_threads_ = static_cast<uint64_t>(processors) * static_cast<uint64_t>(threads);
  }
  return resident_threads_;
}

CUresult MemoryAccount::Charge(uint64_t bytes) {
  if (ledger_.TryCharge(bytes)) return CUDA_SUCCESS;
  if (bytes <= ledger_.limit()) {
    executor_.reaper().WaitAll();
    ReconcilePools();
    if (ChargeAfterOthers(bytes)) return CUDA_SUCCESS;
  }
  if (ledger_.Charge(bytes)) return CUDA_SUCCESS;
  LeaseIsFull(bytes);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult MemoryAccount::ChargeNow(uint64_t bytes) {
  if (ledger_.TryCharge(bytes)) return CUDA_SUCCESS;
  if (bytes <= ledger_.limit() && !measuring_) TrimPools();
  if (ledger_.Charge(bytes)) return CUDA_SUCCESS;
  LeaseIsFull(bytes);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// Another process of the lease may have freed memory and then told this process. Its free is either
// under way to its worker, which takes less than kGraceNs, or it has arrived and waits for work on
// the device.
bool MemoryAccount::ChargeAfterOthers(uint64_t bytes) {
  constexpr uint64_t kGraceNs = 35'000'000;  // also enough on a busy machine
  constexpr uint64_t kMostNs = 100'000'000;
  const struct timespec pause = {0, 250'000};
  const uint64_t started = base::NowNs();
  for (;;) {
    // OthersFree is read before TryCharge: a free that completes in between makes the charge
    // succeed.
    const bool freeing = ledger_.OthersFree();
    if (ledger_.TryCharge(bytes)) return true;
    const uint64_t waited = base::NowNs() - started;
    // Memory that this session has freed and another one has just closed counts as its own.
    const bool hope = ledger_.OthersHold() || executor_.exports().kept() != 0;
    if (!hope || waited >= (freeing ? kMostNs : kGraceNs)) return false;
    executor_.Unlocked([&] { return nanosleep(&pause, nullptr); });
  }
}

// Memory freed in a stream returns to its pool when the stream gets there. The wait is bounded,
// because a stream may wait for something that this client does next.
void MemoryAccount::WaitForPoolFrees() {
  constexpr uint64_t kMostNs = 100'000'000;
  const struct timespec pause = {0, 250'000};
  bool freed = false;
  executor_.objects().pools.ForEach(
      [&](const auto& pool) { freed |= std::exchange(pool->freed, false); });
  if (!freed) return;
  std::vector<std::shared_ptr<Point>> points;
  executor_.EverythingInAll(true, &points);
  const uint64_t until = base::NowNs() + kMostNs;
  for (const auto& point : points) {
    while (executor_.Query(*point) == CUDA_ERROR_NOT_READY && base::NowNs() < until) {
      executor_.Unlocked([&] { return nanosleep(&pause, nullptr); });
    }
  }
}

void MemoryAccount::ReconcilePools() {
  WaitForPoolFrees();
  TrimPools();
}

void MemoryAccount::TrimPools() {
  std::vector<std::shared_ptr<Pool>> pools;
  executor_.objects().pools.ForEach(
      [&](const std::shared_ptr<Pool>& pool) { pools.push_back(pool); });
  for (const auto& pool : pools) {
    const Change change(*this);
    executor_.Unlocked([&] { return executor_.driver()->cuMemPoolTrimTo(pool->handle, 0); });
    ReconcilePool(*pool);
  }
}

void MemoryAccount::ReconcilePool(Pool& pool) {
  cuuint64_t reserved = 0;
  const CUresult result = executor_.driver()->cuMemPoolGetAttribute(
      pool.handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved);
  if (result != CUDA_SUCCESS) return;
  ledger_.Correct(pool.charged_bytes, reserved);
  pool.charged_bytes = reserved;
}

void MemoryAccount::TrimAfterWait(bool all) {
  if (executor_.objects().pools.size() == 0 || measuring_) return;
  const Driver& driver = executor_.driver();
  executor_.objects().pools.ForEach([&](const std::shared_ptr<Pool>& pool) {
    if (!pool->freed) return;
    cuuint64_t threshold = 0;
    driver->cuMemPoolGetAttribute(pool->handle, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
    if (pool->charged_bytes > threshold) driver->cuMemPoolTrimTo(pool->handle, threshold);
    ReconcilePool(*pool);
    if (all) pool->freed = false;
  });
}

template <typename Condition>
void MemoryAccount::WaitUntil(Condition condition) {
  if (condition()) return;
  executor_.role().Yield();
  std::unique_lock lock(executor_.mutex(), std::adopt_lock);
  executor_.changed().wait(lock, condition);
  lock.release();
}

MemoryAccount::Change::Change(MemoryAccount& memory) : memory_(memory) {
  memory_.WaitUntil([&] { return !memory_.measuring_; });
  ++memory_.changing_;
}

MemoryAccount::Change::~Change() {
  if (--memory_.changing_ == 0) memory_.executor_.changed().notify_all();
}

MemoryAccount::Measure::Measure(MemoryAccount& memory) : memory_(memory) {
  memory_.WaitUntil([&] { return !memory_.measuring_; });
  memory_.measuring_ = true;
  memory_.WaitUntil([&] { return memory_.changing_ == 0; });
}

MemoryAccount::Measure::~Measure() {
  memory_.measuring_ = false;
  memory_.executor_.changed().notify_all();
}

}  // namespace rgpu::exec
