// Relays the bytes of clients of `tls:` and `ucx:` to the daemon unchanged.
#pragma once

#include "rgpu_server/gateway/door.h"
#include "rgpu_server/gateway/figures.h"
#include "rgpu_server/gateway/service.h"

namespace rgpu::gateway {

class RelayService final : public Service {
 public:
  RelayService(const Door& door, Figures* figures) : door_(door), figures_(*figures) {}
  void Carry(transport::Connection& client, const wire::Preface& preface,
             const std::function<void(bool)>& known) override;

 private:
  const Door& door_;
  Figures& figures_;
};

}  // namespace rgpu::gateway
