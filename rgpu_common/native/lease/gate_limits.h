// Times and budgets that every gate keeps, of the driver seam and of the array seam.
#pragma once

#include <cstdint>

#include "rgpu_common/native/base/clock.h"

namespace rgpu::lease::limits {

// Predicted work on the device while other leases want it: the next lease waits for so much at
// most, or for one kernel.
inline constexpr uint64_t kSharedBudgetNs = 5 * base::kMillisecond;
// A program that synchronises and goes on at once keeps the token in between: for twice the time
// that it takes to hand the token to another lease and back.
inline constexpr uint64_t kGraceNs = 400 * base::kMicrosecond;
// Work that has run for so long is charged before it is complete.
inline constexpr uint64_t kLongKernelNs = 100 * base::kMillisecond;
// A token loop that was silent for so long is gone; a live one says something every 250 ms.
inline constexpr uint64_t kLoopSilentNs = 5 * base::kSecond;
inline constexpr uint64_t kMostKernelUs = 1'000'000'000;
// How often a gate that waits looks at the page although nobody woke it up: while it keeps a grant,
// and otherwise.
inline constexpr uint64_t kStuckLookNs = base::kMillisecond;
inline constexpr uint64_t kBusyLookNs = 50 * base::kMillisecond;

}  // namespace rgpu::lease::limits
