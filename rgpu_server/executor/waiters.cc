// Waiting calls. A call waits in its own thread, for what was issued when the call was decoded.
#include "rgpu_common/native/base/clock.h"
#include "rgpu_server/executor/executor.h"

namespace rgpu::exec {

namespace {

// For a shorter wait it does not pay to start another decoder.
constexpr uint64_t kSpinNs = 20'000;

}  // namespace

CUresult Executor::Query(Point& point) {
  if (!point.done) {
    const CUresult result = driver_->cuEventQuery(point.event);
    if (result != CUDA_SUCCESS) return result;
    point.Finish(base::NowNs(), false);
  }
  return point.frontier.Settle() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
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
  if (!point->frontier.Settle()) {
    role_.Yield();
    poller_.Hurry();
    std::unique_lock lock(mutex_, std::adopt_lock);
    changed_.wait(lock, [&] { return point->frontier.Settle() || sticky() != CUDA_SUCCESS; });
    lock.release();
  }
  return sticky();
}

void Executor::AwaitInStream(Frontier* frontier) {
  if (frontier->pending.empty()) return;
  std::unique_lock lock(mutex_);
  poller_.Hurry();
  changed_.wait(lock, [&] { return frontier->Settle() || sticky() != CUDA_SUCCESS; });
}

uint64_t Executor::Behind(Frontier* frontier) const {
  const bool known = !order_is_hidden_ && frontier->Settle();
  return known ? frontier->sent : transport::Outbox::kEverything;
}

void Executor::ComesBehind(const Command& command, Frontier* frontier) const {
  *command.behind = Behind(frontier);
}

CUresult Executor::WaitAll(const std::vector<std::shared_ptr<Point>>& points, uint32_t context) {
  for (const auto& point : points) {
    if (const CUresult result = Wait(point, context); result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace rgpu::exec
