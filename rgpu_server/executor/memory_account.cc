#include "rgpu_server/executor/memory_account.h"

#include <time.h>

#include <algorithm>
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
      granules_(executor.driver().emulated ? kEmulatedGranule : kDeviceGranule),
      credit_(executor, ledger) {}

void MemoryAccount::LeaseIsFull(uint64_t bytes) {
  shortage_.LeaseIsFull(ledger_, bytes, executor_.outbox());
}

void MemoryAccount::DeviceIsFull(uint64_t bytes) {
  shortage_.DeviceIsFull(ledger_, bytes, executor_.outbox());
}

void MemoryAccount::PoolIsFull(const Pool& pool, uint64_t bytes) {
  shortage_.PoolIsFull(pool.charged_bytes, pool.max_bytes, bytes, executor_.outbox());
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
    RecallCredit();
    executor_.reaper().WaitAll();
    ReconcilePools();
    if (ChargeLater(bytes, true)) return CUDA_SUCCESS;
  }
  if (ledger_.Charge(bytes)) return CUDA_SUCCESS;
  LeaseIsFull(bytes);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult MemoryAccount::ChargeNow(uint64_t bytes) {
  if (ledger_.TryCharge(bytes)) return CUDA_SUCCESS;
  if (bytes <= ledger_.limit()) {
    RecallCredit();
    if (!measuring_) TrimPools();
    if (ChargeLater(bytes, false)) return CUDA_SUCCESS;
  }
  if (ledger_.Charge(bytes)) return CUDA_SUCCESS;
  LeaseIsFull(bytes);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// Asks this program, and the others of the lease, for credit that they have not used.
void MemoryAccount::RecallCredit() {
  credit_.Recall();
  ledger_.AskOthers(0);
  executor_.FlushNotices();
}

uint64_t MemoryAccount::Forget(uint64_t base, const Range& range) {
  if (range.backed) credit_.Drop(base);
  return granules_.Remove(base, range.bytes);
}

// How long a charge that is refused may wait for memory that comes back by itself. With `frees`,
// also for frees of other processes.
uint64_t MemoryAccount::Patience(bool frees) const {
  if (credit_.uncut() != 0 || ledger_.OthersHaveCredit()) return lease::kReturnedCreditNs;
  if (!frees) return 0;
  const uint64_t others = ledger_.patience_with_others();
  // Memory that this session has freed, and that another one has just closed, comes back too.
  return others == 0 && executor_.exports().kept() != 0 ? lease::kPostedFreeNs : others;
}

bool MemoryAccount::ChargeLater(uint64_t bytes, bool frees) {
  const struct timespec pause = {0, 250'000};
  base::WaitedTime waited(base::NowNs());
  for (uint32_t pass = 0;; ++pass) {
    // Read before TryCharge: what comes back in between makes the charge succeed.
    const uint64_t patience = Patience(frees);
    if (ledger_.TryCharge(bytes)) return true;
    if (waited.Over(base::NowNs(), patience)) return false;
    ledger_.AskOthers(pass);
    executor_.Unlocked([&] { return nanosleep(&pause, nullptr); });
  }
}

// Memory freed in a stream returns to its pool when the stream gets there. The wait is bounded,
// because a stream may wait for something that this client does next.
void MemoryAccount::WaitForPoolFrees() {
  constexpr uint64_t kMostNs = 100'000'000;
  const struct timespec pause = {0, 250'000};
  bool freed = false;
  executor_.objects().pools.ForEach([&](const auto& pool) { freed |= pool->freed != 0; });
  if (!freed) return;
  const uint64_t over = frees_;
  std::vector<std::shared_ptr<Point>> points;
  executor_.EverythingInAll(true, &points);
  base::WaitedTime waited(base::NowNs());
  for (const auto& point : points) {
    while (executor_.Query(*point) == CUDA_ERROR_NOT_READY &&
           !waited.Over(base::NowNs(), kMostNs)) {
      executor_.Unlocked([&] { return nanosleep(&pause, nullptr); });
    }
  }
  if (!std::ranges::all_of(points, [](const auto& point) { return point->done; })) return;
  executor_.objects().pools.ForEach([&](const auto& pool) {
    if (pool->freed <= over) pool->freed = 0;
  });
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

void MemoryAccount::TrimAfterWait(const Point* waited, uint64_t over) {
  bool freed = false;
  executor_.objects().pools.ForEach([&](const auto& pool) { freed |= pool->freed != 0; });
  if (!freed) return;
  // A pool may keep memory whose free no synchronizing call has seen, and a query is none. This one
  // returns at once: nothing has been recorded in the event since.
  const bool event = waited != nullptr && waited->event != nullptr && !waited->fixed;
  if (event && !measuring_ && !waited->pool->abandoned()) {
    executor_.driver()->cuEventSynchronize(waited->event);
  }
  executor_.objects().pools.ForEach([&](const auto& pool) {
    if (pool->freed != 0) TrimToThreshold(*pool, over);
  });
}

void MemoryAccount::TrimToThreshold(Pool& pool, uint64_t over) {
  if (measuring_) {
    trim_due_ = true;
    return;
  }
  const Driver& driver = executor_.driver();
  cuuint64_t threshold = 0;
  driver->cuMemPoolGetAttribute(pool.handle, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
  if (pool.charged_bytes > threshold) driver->cuMemPoolTrimTo(pool.handle, threshold);
  ReconcilePool(pool);
  if (pool.freed <= over || pool.charged_bytes == 0) pool.freed = 0;
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
  if (std::exchange(memory_.trim_due_, false)) memory_.TrimAfterWait(nullptr);
  memory_.credit_.Measured();
  memory_.executor_.changed().notify_all();
}

}  // namespace rgpu::exec
