// Stream capture in the device's calls (rgpu_common/native/graph/hooks.h). While no stream
// captures, each function costs the read of one flag.
#pragma once

#include "rgpu_common/native/graph/hooks.h"
#include "rgpu_emu/device/context.h"

namespace rgpu::emu {

// The graphs of the process.
graph::Model& Graphs();

graph::StreamSite SiteOf(const Stream& stream);

// Issues work on `stream`. Returns true if the call is over: `*result` is what it returns, and the
// work is a node if that is CUDA_SUCCESS. `make(params)` makes the node.
template <class Make>
bool Capture(const Stream& stream, CUresult* result, const Make& make) {
  if (!Graphs().captures.active()) return false;
  return graph::Capture(Graphs(), SiteOf(stream), result, make);
}

// What a synchronous copy or set must ask: 906 on the legacy stream, 900 if it is unsafe.
CUresult CheckSynchronousWork(const Stream& stream);
// What a query of the stream or a wait for it must ask.
CUresult CheckStreamWait(const Stream& stream);
// What calls that are potentially unsafe during a capture must ask: 900.
CUresult CheckUnsafe();

}  // namespace rgpu::emu
