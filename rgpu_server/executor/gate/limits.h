// The gate's times and budgets.
#pragma once

#include <cstdint>

#include "rgpu_common/native/base/clock.h"

namespace rgpu::exec {

// Predicted work on the device while other leases want it: the next lease waits for so much at
// most, or for one kernel.
inline constexpr uint64_t kSharedBudgetNs = 5 * base::kMillisecond;
// While no other lease wants the device: enough that the device never runs dry between two looks of
// the poller.
inline constexpr uint64_t kOpenBudgetNs = 20 * base::kMillisecond;

// Work that is set aside comes to the device all at once when its streams go on.  A session with
// more of it than this releases one piece in a turn, because that piece may be for another stream.
inline constexpr uint64_t kMostAsideNs = 20 * base::kMillisecond;
// A session with more of it than this releases nothing until the client has answered.  The number
// also keeps the driver's queues from filling up: a thread that finds a queue full waits in the
// driver with the executor's lock.
inline constexpr uint64_t kMuchAsideNs = 100 * base::kMillisecond;
inline constexpr uint64_t kMuchAsideCount = 256;

// A program that synchronises and goes on at once keeps the token in between: for twice the time
// that it takes to hand the token to another lease and back.
inline constexpr uint64_t kGraceNs = 400 * base::kMicrosecond;
// Work that has run for so long is charged before it is complete.
inline constexpr uint64_t kLongKernelNs = 100 * base::kMillisecond;
// A token loop that was silent for so long is gone; a live one says something every 250 ms.
inline constexpr uint64_t kLoopSilentNs = 5 * base::kSecond;
// The work of a session that has failed must stop within this time.
inline constexpr uint64_t kStopNs = 10 * base::kSecond;
inline constexpr uint64_t kMostKernelUs = 1'000'000'000;

// How often the thread that sleeps on the page looks at it although nobody woke it up.
inline constexpr uint64_t kStuckLookNs = base::kMillisecond;
inline constexpr uint64_t kBusyLookNs = 50 * base::kMillisecond;
inline constexpr uint64_t kIdleLookNs = base::kSecond;

}  // namespace rgpu::exec
