// Carries the clients of a gateway.
#pragma once

#include <functional>

#include "gen/handshake.gen.h"
#include "rgpu_common/native/transport/transport.h"

namespace rgpu::gateway {

class Service {
 public:
  virtual ~Service() = default;
  // Carries one client until its connection has ended. Called by one thread for each client. It
  // calls `known` with true when the daemon answers the client, and with false when it no longer
  // does.
  virtual void Carry(transport::Connection& client, const wire::Preface& preface,
                     const std::function<void(bool)>& known) = 0;
  // The daemon has ended. Clients may finish what they have begun.
  virtual void Leave() {}
};

}  // namespace rgpu::gateway
