// The device of a graph.
#pragma once

#include "rgpu_client/shim/calls/here.h"
#include "rgpu_common/native/graph/instance.h"

namespace rgpu::shim {

// Sets `*here` to the session that the nodes of the graph name, with one of their contexts, or else
// to the current context. CUDA_ERROR_NOT_SUPPORTED: the nodes are of several sessions.
CUresult HomeOf(const graph::Instance& instance, Here* here);

}  // namespace rgpu::shim
