#include "rgpu_server/executor/executor.h"

#include <time.h>

namespace rgpu::exec {

Executor::Executor(const Driver& driver, Ledger& ledger, transport::Outbox& outbox, CUdevice device)
    : driver_(driver),
      ledger_(ledger),
      outbox_(outbox),
      device_(device),
      poller_(*this),
      reaper_(*this),
      pulls_(*this) {}

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
  writer.Put(context);
  writer.Put(wire::Bytes(sentence));
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

void Executor::FlushNotices() {
  if (notices_.empty()) return;
  transport::FrameBuffer frames;
  frames.swap(notices_);
  Unlocked([&] { return outbox_.Post(frames); });
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
  if (ledger_.Charge(bytes)) return CUDA_SUCCESS;
  if (bytes > ledger_.limit()) return CUDA_ERROR_OUT_OF_MEMORY;
  reaper_.WaitAll();
  ReconcilePools();
  return ChargeAfterOthers(bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// Another process of the lease may have freed memory and told this one, while its posted free is
// still on its way.
bool Executor::ChargeAfterOthers(uint64_t bytes) {
  constexpr int kTries = 200;
  const struct timespec pause = {0, 500'000};
  for (int i = 0; i < kTries; ++i) {
    if (ledger_.Charge(bytes)) return true;
    if (ledger_.used() == ledger_.own()) return false;
    Unlocked([&] { return nanosleep(&pause, nullptr); });
  }
  return false;
}

void Executor::ReconcilePools() {
  std::vector<std::shared_ptr<Pool>> pools;
  pools_.ForEach([&](const std::shared_ptr<Pool>& pool) { pools.push_back(pool); });
  for (const auto& pool : pools) {
    Unlocked([&] { return driver_->cuMemPoolTrimTo(pool->handle, 0); });
    ReconcilePool(*pool);
  }
}

void Executor::ReconcilePool(Pool& pool) {
  cuuint64_t reserved = 0;
  const CUresult result =
      driver_->cuMemPoolGetAttribute(pool.handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved);
  // Growth that the lease refuses stays uncounted; the pool's own cap bounds it.
  if (result == CUDA_SUCCESS && ledger_.Adjust(pool.charged_bytes, reserved)) {
    pool.charged_bytes = reserved;
  }
}

}  // namespace rgpu::exec
