// Parked waits: a call that waits does so in its own thread, for what was issued when it was
// decoded.
#include "rgpu_common/native/base/clock.h"
#include "rgpu_server/executor/executor.h"

namespace rgpu::exec {

namespace {

// A short wait is not worth another thread.
constexpr uint64_t kSpinNs = 20'000;

bool FrontierDone(Frontier* frontier) {
  std::erase_if(*frontier, [](const auto& delivery) { return delivery->done; });
  return frontier->empty();
}

}  // namespace

CUresult Executor::Query(Point& point) {
  if (!point.done) {
    const CUresult result = driver_->cuEventQuery(point.event);
    if (result != CUDA_SUCCESS) return result;
    point.Finish(base::NowNs(), false);
  }
  return FrontierDone(&point.frontier) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult Executor::Wait(const std::shared_ptr<Point>& point, uint32_t context) {
  if (point == nullptr) return CUDA_SUCCESS;
  if (!point->done) {
    uint64_t done_ns = 0;
    const CUresult result = Unlocked([&] {
      const uint64_t until = base::NowNs() + (role_.Held() ? kSpinNs : 0);
      CUresult state = CUDA_ERROR_NOT_READY;
      do {
        state = driver_->cuEventQuery(point->event);
      } while (state == CUDA_ERROR_NOT_READY && base::NowNs() < until);
      if (state == CUDA_ERROR_NOT_READY) {
        role_.Yield();
        state = driver_->cuEventSynchronize(point->event);
      }
      done_ns = base::NowNs();
      return state;
    });
    if (result != CUDA_SUCCESS) {
      Check(result, context);
      return result;
    }
    point->Finish(done_ns, true);
  }
  if (!FrontierDone(&point->frontier)) {
    role_.Yield();
    poller_.Hurry();
    std::unique_lock lock(mutex_, std::adopt_lock);
    changed_.wait(lock, [&] { return FrontierDone(&point->frontier) || sticky() != CUDA_SUCCESS; });
    lock.release();
  }
  return sticky();
}

void Executor::AwaitInStream(Frontier* frontier) {
  if (frontier->empty()) return;
  std::unique_lock lock(mutex_);
  poller_.Hurry();
  changed_.wait(lock, [&] { return FrontierDone(frontier) || sticky() != CUDA_SUCCESS; });
}

CUresult Executor::WaitAll(const std::vector<std::shared_ptr<Point>>& points, uint32_t context) {
  for (const auto& point : points) {
    if (const CUresult result = Wait(point, context); result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace rgpu::exec
