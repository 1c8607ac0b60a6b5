// What a node of an executable graph does at each launch.
#pragma once

#include <functional>
#include <memory>

#include "rgpu_common/native/graph/params.h"
#include "rgpu_emu/device/event.h"

namespace rgpu::emu {

// Immutable: launches that run keep it while the executable gets another.
struct GraphOperation {
  // The context in which it runs, and which fails if it fails.
  std::shared_ptr<Context> context;
  // Null: the node does nothing, or it is one of the following.
  std::function<CUresult()> run;
  // Each launch records (waits for) the event.
  std::shared_ptr<Event> record;
  std::shared_ptr<Event> wait;
  // A conditional node.
  bool conditional = false;
  CUgraphConditionalHandle handle = 0;
  CUgraphConditionalNodeType type = CU_GRAPH_COND_TYPE_IF;
};

// The checks of a node that is added, and of parameters that are changed.
CUresult CheckKernelNode(const graph::KernelParams& params);
CUresult CheckCopyNode(const graph::CopyParams& params);
CUresult CheckSetNode(const graph::SetParams& params);
CUresult CheckBatchNode(const graph::BatchParams& params);

// Compiles the node. A kernel is compiled here, at its first use.
CUresult MakeOperation(const graph::Params& params, std::shared_ptr<const GraphOperation>* out);

}  // namespace rgpu::emu
