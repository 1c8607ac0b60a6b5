// Graphs and stream capture. The functions are those of rgpu_common/native/graph.
#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/graphs/graphs.h"
#include "rgpu_common/native/graph/make_params.h"

namespace rgpu::shim {

#include "rgpu_common/native/graph/graph_calls.inc"
#include "rgpu_common/native/graph/graph_calls_older.inc"

}  // namespace rgpu::shim
