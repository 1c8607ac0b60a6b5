// The gate's times and budgets.
#pragma once

#include <cstdint>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/lease/gate_limits.h"

namespace rgpu::exec {

using namespace lease::limits;

// While no other lease wants the device: enough that the device never runs dry between two looks of
// the poller.
inline constexpr uint64_t kOpenBudgetNs = 20 * base::kMillisecond;

// Work that is set aside comes to the device all at once when its streams go on.  A session with
// more of it than this releases one piece in a turn, because that piece may be for another stream.
inline constexpr uint64_t kMostAsideNs = 20 * base::kMillisecond;
// A session with more of it than this releases nothing until the client has answered, and only a
// piece now and then while a stream waits for a value in memory.  The number
// also keeps the driver's queues from filling up: a thread that finds a queue full waits in the
// driver with the executor's lock.
inline constexpr uint64_t kMuchAsideNs = 100 * base::kMillisecond;
inline constexpr uint64_t kMuchAsideCount = 256;

// While a stream waits for the client, a launch has the standing work counted at most this often:
// counting looks at every stream with work.
inline constexpr uint64_t kStandingLookNs = base::kMillisecond;
// The work of a session that has failed must stop within this time.
inline constexpr uint64_t kStopNs = 10 * base::kSecond;

// How often the thread that sleeps on the page looks at it although nobody woke it up.
inline constexpr uint64_t kIdleLookNs = base::kSecond;

}  // namespace rgpu::exec
