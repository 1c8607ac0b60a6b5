// Carries clients of `grpc:`. HTTP/2 ends here, and each call gets its own way to the daemon.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_set>

#include "rgpu_server/gateway/http2/house.h"
#include "rgpu_server/gateway/service.h"

namespace rgpu::gateway::http2 {

class HttpService final : public Service {
 public:
  HttpService(const lib::Api& api, const Door& door, Figures* figures, const Patience& patience,
              const Bounds& bounds)
      : house_(api, door, figures, patience, bounds) {}

  void Carry(transport::Connection& client, const wire::Preface& preface,
             const std::function<void(bool)>& known) override;
  void Leave() override;

 private:
  House house_;
  std::mutex mutex_;
  std::unordered_set<std::shared_ptr<Waker>> wakers_;
};

}  // namespace rgpu::gateway::http2
