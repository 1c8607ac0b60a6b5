// Times that the parts of a gate share.
#pragma once

#include "rgpu_common/native/base/clock.h"

namespace rgpu::exec {

// A client on the same host, or on a quick network, answers sooner: giving the device to another
// would cost more.
inline constexpr uint64_t kClientNs = 5 * base::kMillisecond;

// Released behind streams that wait, it is all on the device at once when they go on.  A session
// with more of it releases one piece in a turn: it may be for another stream.
inline constexpr uint64_t kMostAsideNs = 20 * base::kMillisecond;
// With so much it releases nothing before the client has answered.  The pieces also keep a queue of
// the driver's from being full: who finds it so waits with the executor's lock.
inline constexpr uint64_t kMuchAsideNs = 100 * base::kMillisecond;
inline constexpr uint64_t kMuchAside = 256;

}  // namespace rgpu::exec
