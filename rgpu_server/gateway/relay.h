// Carries bytes between two connections, both ways, until both directions have ended.
#pragma once

#include <cstddef>
#include <functional>

#include "rgpu_common/native/transport/transport.h"
#include "rgpu_server/gateway/figures.h"

namespace rgpu::gateway {

inline constexpr size_t kRelayBytes = 256U << 10;

// Blocks.  Holds at most kRelayBytes each way: an end that reads slowly makes the other one wait.
// Once one direction has ended, or the inner peer is gone (as inner_fd, its socket, tells), the
// other direction has `linger_ms` in which nothing moves before it is ended too.  What goes through
// is counted in `figures`.  `answered` is called with true when the inner end says its first, with
// false when it has said its last.
void Relay(transport::Connection& client, transport::Connection& inner, int inner_fd, int linger_ms,
           Figures* figures, const std::function<void(bool)>& answered);

}  // namespace rgpu::gateway
