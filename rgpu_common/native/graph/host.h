// What the model asks of the library that it is part of: the shim or the emulated device.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "rgpu_common/native/graph/params.h"
#include "rgpu_common/native/graph/user_object.h"

namespace rgpu::graph {

class Exec;
struct ConditionalHandle;
struct Instance;

enum class StreamKind { kLegacy, kBlocking, kNonBlocking };

// A stream of the program. `id` is never used again in the process.
struct StreamSite {
  uint64_t id = 0;
  StreamKind kind = StreamKind::kBlocking;
  CUcontext context = nullptr;
};

// A kernel as a launch finds it. `places` and `param_bytes` are its parameters.
struct KernelSite {
  CUcontext context = nullptr;
  std::vector<ParamPlace> places;
  uint32_t param_bytes = 0;
};

// The model calls these functions without a lock.
class Host {
 public:
  virtual ~Host() = default;

  // The operand of a call: 0, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD or a handle. Returns the
  // sticky error of the stream's context, as every call with a stream does.
  virtual CUresult FindStream(CUstream operand, StreamSite* site) = 0;
  // The context that is current on this thread.
  virtual CUresult CurrentContext(CUcontext* context) = 0;
  // Whether `context` exists.
  virtual CUresult CheckContext(CUcontext context) = 0;
  virtual CUresult CheckEvent(CUevent event) = 0;
  // Finds a function, or a kernel (the function is null) in `context` (null: the current one).
  virtual CUresult FindKernel(CUfunction function, CUkernel kernel, CUcontext context,
                              KernelSite* site) = 0;
  // The checks of a launch: dimensions, shared memory, cooperative grids, attributes.
  virtual CUresult CheckKernel(const KernelParams& params) = 0;
  virtual CUresult CheckCopy(const CopyParams& params) = 0;
  virtual CUresult CheckSet(const SetParams& params) = 0;
  virtual CUresult CheckBatch(const BatchParams& params) = 0;
  // The memory of an alloc node, charged. It stays until the object is destroyed.
  virtual CUresult Allocate(const AllocParams& params, std::shared_ptr<Allocation>* out) = 0;
  // A value that device code reads: made by the device. `root` is the handle of the graph that it
  // is for, or of the one around that graph. Sets `value` and `keep`.
  virtual CUresult NewConditional(uint64_t root, ConditionalHandle* handle) = 0;
  // Makes an executable. It may read and change `instance` until it is published.
  virtual CUresult NewExec(Instance instance, std::shared_ptr<Exec>* exec) = 0;
  // Runs the destructor of a user object, now or later, in a thread that may not call CUDA.
  virtual void Destroyed(std::shared_ptr<UserObject> object) = 0;
};

}  // namespace rgpu::graph
