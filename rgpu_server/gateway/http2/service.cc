#include "rgpu_server/gateway/http2/service.h"

#include "rgpu_server/gateway/http2/carrier.h"

namespace rgpu::gateway::http2 {

void HttpService::Carry(transport::Connection& client, const wire::Preface& preface,
                        const std::function<void(bool)>& known) {
  const auto waker = std::make_shared<Waker>();
  {
    const std::lock_guard lock(mutex_);
    wakers_.insert(waker);
  }
  Carrier(house_, client, preface, waker, known).Run();
  const std::lock_guard lock(mutex_);
  wakers_.erase(waker);
}

void HttpService::Leave() {
  house_.leaving = true;
  const std::lock_guard lock(mutex_);
  for (const auto& waker : wakers_) waker->Wake();
}

}  // namespace rgpu::gateway::http2
