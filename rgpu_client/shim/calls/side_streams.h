// Streams of the library's own, for work that another device's stream asked for. A context gets one
// when it first needs it, and a few if it needs several at once.
#pragma once

#include "rgpu_client/shim/calls/order.h"

namespace rgpu::shim {

// Adds a side stream of the context to `*here`, with its session and context. It is in use until
// the point is reached. Streams in use are shared when a context has many: the order is then
// stricter than asked for.
CUresult SideStreamHere(Session& session, Context& context, const PointRef& until, Here* here);
// In a forked child.
void ForgetSideStreams();

}  // namespace rgpu::shim
