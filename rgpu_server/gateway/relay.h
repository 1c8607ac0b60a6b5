// Carries bytes between two connections, both ways, until both directions have ended.
#pragma once

#include <cstddef>
#include <functional>

#include "rgpu_common/native/transport/transport.h"
#include "rgpu_server/gateway/figures.h"

namespace rgpu::gateway {

inline constexpr size_t kRelayBytes = 256U << 10;

// Blocks until both directions have ended.  Holds at most kRelayBytes in each direction, so a slow
// reader makes the sender wait.  Once one direction has ended, the other one is ended too when no
// byte has moved in it for `linger_ms`.  The same holds for the direction to the client once the
// inner peer has closed its socket `inner_fd`.  Adds the bytes to `figures`.  Calls `answered` with
// true when the first bytes of the inner peer arrive, and with false when its direction has ended.
void Relay(transport::Connection& client, transport::Connection& inner, int inner_fd, int linger_ms,
           Figures* figures, const std::function<void(bool)>& answered);

}  // namespace rgpu::gateway
