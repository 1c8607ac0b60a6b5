#include "rgpu_server/executor/executor.h"

#include <time.h>

#include <algorithm>
#include <utility>

#include "gen/codec.gen.h"
#include "gen/notices.gen.h"
#include "gen/opcodes.gen.h"
#include "rgpu_common/native/base/clock.h"

namespace rgpu::exec {

namespace {

// The unit of device memory in which allocations are charged. The emulated device gives every
// allocation its own pages. NVIDIA's driver takes small allocations from pieces of 2 MiB.
constexpr uint64_t kEmulatedGranule = 4096;
constexpr uint64_t kDeviceGranule = 2U << 20;

// Bounds a prediction, because the client may ask for any number of bytes.
constexpr uint64_t kMostPredictedBytes = 64U << 20;

}  // namespace

Executor::Executor(const Driver& driver, Ledger& ledger, transport::Outbox& outbox, CUdevice device,
                   Lease lease)
    : driver_(driver),
      ledger_(ledger),
      outbox_(outbox),
      device_(device),
      granules_(driver.emulated ? kEmulatedGranule : kDeviceGranule),
      poller_(*this),
      reaper_(*this),
      pulls_(*this),
      directs_(*this),
      gate_(*this, lease.page, lease.slot, std::move(lease.signal)) {}

uint64_t Executor::Predict(const Command& command) const {
  const DeviceWork work =
      WorkOf(static_cast<Opcode>(command.header.opcode), command.head, command.header.bulk_bytes);
  const uint64_t bytes = std::min(work.bytes, MostPredicted(work.bound));
  switch (work.kind) {
    case WorkKind::kNone:
      return 0;
    case WorkKind::kLaunch:
      return PredictLaunch(work);
    case WorkKind::kCopyIn:
      return copies_.in->Predict(bytes);
    case WorkKind::kCopyOut:
      return copies_.out->Predict(bytes);
    case WorkKind::kCopyWithin:
      return copies_.within->Predict(bytes);
    case WorkKind::kSet:
      return copies_.set->Predict(bytes);
  }
  return 0;
}

uint64_t Executor::PredictLaunch(const DeviceWork& launch) const {
  Function* function = nullptr;
  const CUresult found = launch.function != 0 ? functions_.Find(launch.function, &function)
                                              : kernels_.Find(launch.kernel, &function);
  return found == CUDA_SUCCESS ? function->estimate->Predict(1)
                               : static_cast<uint64_t>(kFirstKernelNs);
}

uint64_t Executor::MostPredicted(WorkBound bound) const {
  switch (bound) {
    case WorkBound::kPiece:
      return wire::kPieceBytes;
    case WorkBound::kFixed:
      return kMostPredictedBytes;
    case WorkBound::kLease:
      break;
  }
  return std::max(ledger_.limit(), kMostPredictedBytes);
}

void Executor::SetSticky(CUresult error, uint32_t context, const std::string& sentence) {
  CUresult none = CUDA_SUCCESS;
  if (!sticky_.compare_exchange_strong(none, error)) return;
  wire::FrameHeader header;
  header.kind = wire::Kind::kNotice;
  header.opcode = static_cast<uint16_t>(wire::Notice::kSticky);
  header.status = static_cast<int32_t>(error);
  header.context = context;
  transport::FrameBuffer frame;
  wire::Writer writer = frame.Begin(header);
  Put(writer, wire::Sticky{context, wire::Bytes(sentence)});
  frame.End();
  outbox_.Post(frame);
  changed_.notify_all();
}

void Executor::Check(CUresult result, uint32_t context) {
  if (!IsSticky(result)) return;
  const char* name = nullptr;
  driver_->cuGetErrorName(result, &name);
  SetSticky(result, context,
            std::string("the device reported ") + (name ? name : "an error") +
                " in work submitted earlier; the session cannot go on, start the program again");
}

void Executor::Tell(Told kind, const std::string& sentence) {
  if ((told_ & static_cast<uint32_t>(kind)) != 0) return;
  told_ |= static_cast<uint32_t>(kind);
  constexpr uint32_t kError = 1;
  wire::FrameHeader header;
  header.kind = wire::Kind::kNotice;
  header.opcode = static_cast<uint16_t>(wire::Notice::kLog);
  wire::Writer writer = notices(0).Begin(header);
  Put(writer, wire::Log{kError, wire::Bytes(sentence)});
  notices_.End();
}

void Executor::FlushNotices() {
  if (notices_.empty()) return;
  transport::FrameBuffer frames;
  frames.swap(notices_);
  const uint64_t behind = std::exchange(notices_behind_, 0);
  Unlocked([&] { return outbox_.Post(frames, false, behind); });
}

void Executor::HandOverNotices() {
  if (notices_.empty()) return;
  outbox_.Post(notices_, true, std::exchange(notices_behind_, 0));
  notices_.clear();
}

uint64_t Executor::resident_threads() {
  if (resident_threads_ == 0) {
    int processors = 0;
    int threads = 0;
    driver_->cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device_);
    driver_->cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
                                  device_);
    resident_threads_ = static_cast<uint64_t>(processors) * static_cast<uint64_t>(threads);
  }
  return resident_threads_;
}

CUresult Executor::Charge(uint64_t bytes) {
  if (ledger_.TryCharge(bytes)) return CUDA_SUCCESS;
  if (bytes <= ledger_.limit()) {
    reaper_.WaitAll();
    ReconcilePools();
    if (ChargeAfterOthers(bytes)) return CUDA_SUCCESS;
  }
  if (ledger_.Charge(bytes)) return CUDA_SUCCESS;
  LeaseIsFull(bytes);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult Executor::ChargeNow(uint64_t bytes) {
  if (ledger_.TryCharge(bytes)) return CUDA_SUCCESS;
  if (bytes <= ledger_.limit() && !measuring_) TrimPools();
  if (ledger_.Charge(bytes)) return CUDA_SUCCESS;
  LeaseIsFull(bytes);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// Another process of the lease may have freed memory and then told this process. Its free is either
// under way to its worker, which takes less than kGraceNs, or it has arrived and waits for work on
// the device.
bool Executor::ChargeAfterOthers(uint64_t bytes) {
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
    if (!ledger_.OthersHold() || waited >= (freeing ? kMostNs : kGraceNs)) return false;
    Unlocked([&] { return nanosleep(&pause, nullptr); });
  }
}

// Memory freed in a stream returns to its pool when the stream gets there. The wait is bounded,
// because a stream may wait for something that this client does next.
void Executor::WaitForPoolFrees() {
  constexpr uint64_t kMostNs = 100'000'000;
  const struct timespec pause = {0, 250'000};
  bool freed = false;
  pools_.ForEach([&](const auto& pool) { freed |= std::exchange(pool->freed, false); });
  if (!freed) return;
  std::vector<std::shared_ptr<Point>> points;
  EverythingInAll(true, &points);
  const uint64_t until = base::NowNs() + kMostNs;
  for (const auto& point : points) {
    while (Query(*point) == CUDA_ERROR_NOT_READY && base::NowNs() < until) {
      Unlocked([&] { return nanosleep(&pause, nullptr); });
    }
  }
}

void Executor::ReconcilePools() {
  WaitForPoolFrees();
  TrimPools();
}

void Executor::TrimPools() {
  std::vector<std::shared_ptr<Pool>> pools;
  pools_.ForEach([&](const std::shared_ptr<Pool>& pool) { pools.push_back(pool); });
  for (const auto& pool : pools) {
    const Change change(*this);
    Unlocked([&] { return driver_->cuMemPoolTrimTo(pool->handle, 0); });
    ReconcilePool(*pool);
  }
}

void Executor::ReconcilePool(Pool& pool) {
  cuuint64_t reserved = 0;
  const CUresult result =
      driver_->cuMemPoolGetAttribute(pool.handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved);
  if (result != CUDA_SUCCESS) return;
  ledger_.Correct(pool.charged_bytes, reserved);
  pool.charged_bytes = reserved;
}

void Executor::TrimAfterWait(bool all) {
  if (pools_.size() == 0 || measuring_) return;
  pools_.ForEach([&](const std::shared_ptr<Pool>& pool) {
    if (!pool->freed) return;
    cuuint64_t threshold = 0;
    driver_->cuMemPoolGetAttribute(pool->handle, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
    if (pool->charged_bytes > threshold) driver_->cuMemPoolTrimTo(pool->handle, threshold);
    ReconcilePool(*pool);
    if (all) pool->freed = false;
  });
}

template <typename Condition>
void Executor::WaitUntil(Condition condition) {
  if (condition()) return;
  role_.Yield();
  std::unique_lock lock(mutex_, std::adopt_lock);
  changed_.wait(lock, condition);
  lock.release();
}

Executor::Change::Change(Executor& executor) : executor_(executor) {
  executor_.WaitUntil([&] { return !executor_.measuring_; });
  ++executor_.changing_;
}

Executor::Change::~Change() {
  if (--executor_.changing_ == 0) executor_.changed_.notify_all();
}

Executor::Measure::Measure(Executor& executor) : executor_(executor) {
  executor_.WaitUntil([&] { return !executor_.measuring_; });
  executor_.measuring_ = true;
  executor_.WaitUntil([&] { return executor_.changing_ == 0; });
}

Executor::Measure::~Measure() {
  executor_.measuring_ = false;
  executor_.changed_.notify_all();
}

}  // namespace rgpu::exec
