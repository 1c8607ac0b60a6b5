// The parameters of graph nodes, as the driver takes them, from those of the wire. Each function
// checks every handle and address first.
#pragma once

#include <memory>
#include <vector>

#include "rgpu_common/native/wire/graph_definition.h"
#include "rgpu_server/executor/driver.h"
#include "rgpu_server/executor/rows.h"

namespace rgpu::exec {

class Executor;
struct Array;
struct Context;
struct Event;
struct Function;

// A kernel's parameters. The driver copies what `extra` points to. Not to be moved.
struct KernelParams {
  KernelParams() = default;
  KernelParams(const KernelParams&) = delete;
  KernelParams& operator=(const KernelParams&) = delete;

  CUDA_KERNEL_NODE_PARAMS driver{};
  std::shared_ptr<Function> function;
  size_t bytes = 0;
  void* extra[5] = {};
};

// A copy: the whole of it, or of a copy with a host side the rows on the device.
struct CopyParams {
  CUDA_MEMCPY3D driver{};
  CUcontext context = nullptr;
  Rows rows;
  std::vector<std::shared_ptr<Array>> arrays;  // that it names
};

// Turns what nodes name into what the driver knows. `own`: the context of the graph.
class GraphOperands {
 public:
  GraphOperands(Executor& executor, std::shared_ptr<Context> own)
      : executor_(executor), own_(std::move(own)) {}

  CUresult Kernel(const wire::GraphKernel& kernel, KernelParams* out);
  // Sets all of `out` except the rows; both sides are on the device.
  CUresult Copy(const wire::GraphCopy& copy, CopyParams* out);
  // Sets all of `out` except what the driver takes; one side is in host memory.
  CUresult HostCopy(const wire::GraphCopy& copy, CopyParams* out);
  CUresult Set(const wire::GraphSet& set, CUDA_MEMSET_NODE_PARAMS* out, CUcontext* context);
  // The event keeps one driver event from now on, which it returns.
  CUresult EventOf(uint64_t id, std::shared_ptr<Event>* event, CUevent* out);
  // `out->paramArray` points into `operations`.
  CUresult MemoryOperations(const wire::GraphMemoryOperations& batch,
                            std::vector<CUstreamBatchMemOpParams>* operations,
                            CUDA_BATCH_MEM_OP_NODE_PARAMS* out);
  // 0: the context of the graph. Remembers the context.
  CUresult ContextOf(uint32_t id, CUcontext* out);

  // The contexts that were named.
  const std::vector<std::shared_ptr<Context>>& contexts() const { return contexts_; }

 private:
  CUresult Remember(const std::shared_ptr<Context>& context);
  CUresult Begin(const wire::GraphCopy& copy, CopyParams* out);
  CUresult SideOf(const wire::GraphSide& side, const wire::GraphCopy& copy, Rows* rows,
                  CopyParams* out);
  CUresult PlaceInArray(const wire::GraphArraySide& side, Rows* rows, CopyParams* out);

  Executor& executor_;
  const std::shared_ptr<Context> own_;
  std::vector<std::shared_ptr<Context>> contexts_;
};

// The part of a copy with a host side that moves between `staging` and a portion of `rows`.
CUDA_MEMCPY3D CopyOfPortion(const wire::GraphCopy& copy, const Rows& rows, const Portion& portion,
                            uint8_t* staging);

// Finds the portions of checked rows, in the order of their packed bytes. False: there are too
// many.
bool PortionsOf(const Rows& rows, std::vector<Portion>* portions);

// True if the copies differ at most in where on the device their sides lie.
bool SameShape(const wire::GraphCopy& one, const wire::GraphCopy& other);

// The bytes of a copy. False: they overflow.
bool BytesOf(const wire::GraphCopy& copy, uint64_t* bytes);

}  // namespace rgpu::exec
