// Order between streams of different sessions, by points (order_point.h).
#pragma once

#include <memory>

#include "rgpu_client/shim/calls/here.h"
#include "rgpu_client/shim/order_point.h"

namespace rgpu::shim {

using PointRef = std::shared_ptr<OrderPoint>;

// Posts the point in first.stream. After an error it counts as reached.
CUresult PostPoint(const Here& here, const PointRef& point);
// Lets what is posted in here.stream from now on run after the point.
CUresult PostWait(const Here& here, const PointRef& point);
// Lets what is posted in `second` from now on run after all that was posted in `first`.
CUresult Follow(const Here& first, const Here& second);

// cuStreamWaitEvent for an event of another session than here.stream.
CUresult WaitForEventOfAnother(const Here& here, CUevent event, unsigned flags);

}  // namespace rgpu::shim
