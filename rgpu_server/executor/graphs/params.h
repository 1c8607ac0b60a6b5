// The parameters of graph nodes, as the driver takes them, from those of the wire. Each function
// checks every handle and address first.
#pragma once

#include <memory>
#include <vector>

#include "rgpu_common/native/wire/graph_definition.h"
#include "rgpu_server/executor/driver.h"

namespace rgpu::exec {

class Executor;
struct Context;
struct Event;
struct Function;
struct Portion;

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

// Turns what nodes name into what the driver knows. `own`: the context of the graph.
class GraphOperands {
 public:
  GraphOperands(Executor& executor, std::shared_ptr<Context> own)
      : executor_(executor), own_(std::move(own)) {}

  CUresult Kernel(const wire::GraphKernel& kernel, KernelParams* out);
  // The whole copy; both sides are in device memory.
  CUresult Copy(const wire::GraphCopy& copy, CUDA_MEMCPY3D* out, CUcontext* context);
  // Checks the device side of a copy with a host side.
  CUresult CheckHostCopy(const wire::GraphCopy& copy, CUcontext* context);
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
  CUresult CheckSide(const wire::GraphSide& side, const wire::GraphCopy& copy);

  Executor& executor_;
  const std::shared_ptr<Context> own_;
  std::vector<std::shared_ptr<Context>> contexts_;
};

// The part of a copy with a host side that moves between `staging` and the device.
CUDA_MEMCPY3D CopyOfPortion(const wire::GraphCopy& copy, const Portion& portion, uint8_t* staging);

// The portions of a copy with a host side, in the order of their packed bytes.
std::vector<Portion> PortionsOf(const wire::GraphCopy& copy);

// True if the copies differ at most in the addresses of their sides.
bool SameShape(const wire::GraphCopy& one, const wire::GraphCopy& other);

// The bytes of a copy. False: they overflow.
bool BytesOf(const wire::GraphCopy& copy, uint64_t* bytes);

}  // namespace rgpu::exec
