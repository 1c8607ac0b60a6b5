// The text of cuGraphDebugDotPrint.
#pragma once

#include <string>

#include "rgpu_common/native/graph/graph.h"

namespace rgpu::graph {

// `flags` are CUgraphDebugDot_flags.
std::string DotText(const Graph& graph, unsigned flags);

}  // namespace rgpu::graph
