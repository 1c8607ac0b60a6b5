// The graphs of this process, and what its streams capture.
//
// A graph is here until it is instantiated: the functions of rgpu_common/native/graph answer every
// call about it. While a stream captures, a call that would be posted becomes a node instead.
#pragma once

#include <utility>

#include "rgpu_client/shim/calls/here.h"
#include "rgpu_common/native/graph/calls.h"
#include "rgpu_common/native/graph/hooks.h"

namespace rgpu::shim {

graph::Model& Graphs();
// In a forked child, where a thread that held the model's lock may not exist.
void ForgetGraphs();

// here.stream as the model names it.
graph::StreamSite SiteOf(const Here& here);

// For a call that issues work in here.stream. True: the stream captures, or must not get work while
// another one captures; the call returns `*result`. `make(graph::Params*)` gives the parameters of
// the node. Costs one load while nothing captures.
template <typename Make>
bool Captured(const Here& here, CUresult* result, const Make& make) {
  graph::Model& model = Graphs();
  return model.captures.active() && graph::Capture(model, SiteOf(here), result, make);
}

// For a call that may not be made while a stream captures, in some modes.
inline CUresult CheckUnsafe() { return graph::CheckUnsafe(Graphs()); }

// For a call that waits for here.stream, or asks whether its work is complete.
inline CUresult CheckStreamWait(const Here& here) {
  graph::Model& model = Graphs();
  return model.captures.active() ? graph::CheckStreamWait(model, SiteOf(here)) : CUDA_SUCCESS;
}

// For a call that issues work in here.stream and waits for it.
inline CUresult CheckSynchronousWork(const Here& here) {
  const CUresult status = CheckStreamWait(here);
  return status == CUDA_SUCCESS ? CheckUnsafe() : status;
}

// For a call that waits for a context, or adds to all its streams.
inline CUresult CheckContextWait(const Context& context) {
  return graph::CheckContextWait(Graphs(), MakeHandle<CUcontext>(context.id));
}

}  // namespace rgpu::shim
