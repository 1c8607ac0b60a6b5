// Calls cuGraph*, cuUserObject* and those of stream capture.
#include "rgpu_common/native/graph/calls.h"
#include "rgpu_common/native/graph/make_params.h"
#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/entry.h"
#include "rgpu_emu/device/graph_capture.h"
#include "rgpu_emu/device/graph_exec.h"
#include "rgpu_emu/device/graph_memory.h"

namespace rgpu::emu {
namespace {

graph::StreamKind KindOf(StreamKind kind) {
  switch (kind) {
    case StreamKind::kLegacy:
      return graph::StreamKind::kLegacy;
    case StreamKind::kBlocking:
      return graph::StreamKind::kBlocking;
    default:
      return graph::StreamKind::kNonBlocking;
  }
}

// What the shared model of graphs asks of the device.
class DeviceHost : public graph::Host {
 public:
  CUresult FindStream(CUstream operand, graph::StreamSite* site) override {
    std::shared_ptr<Stream> stream;
    const CUresult found = emu::FindStream(operand, &stream);
    if (found == CUDA_SUCCESS) *site = SiteOf(*stream);
    return found;
  }
  CUresult CurrentContext(CUcontext* context) override {
    std::shared_ptr<Context> current;
    const CUresult found = emu::CurrentContext(&current);
    if (found == CUDA_SUCCESS) *context = As<CUcontext>(current->handle);
    return found;
  }
  CUresult CheckContext(CUcontext context) override {
    const auto found = TheDevice().contexts.Find(Raw(context));
    return found == nullptr ? CUDA_ERROR_INVALID_CONTEXT : found->Status();
  }
  CUresult CheckEvent(CUevent event) override {
    const auto found = TheDevice().events.Find(Raw(event));
    return found == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  }
  CUresult FindKernel(CUfunction function, CUkernel kernel, CUcontext context,
                      graph::KernelSite* site) override;
  CUresult CheckKernel(const graph::KernelParams& params) override {
    return CheckKernelNode(params);
  }
  CUresult CheckCopy(const graph::CopyParams& params) override { return CheckCopyNode(params); }
  CUresult CheckSet(const graph::SetParams& params) override { return CheckSetNode(params); }
  CUresult CheckBatch(const graph::BatchParams& params) override { return CheckBatchNode(params); }
  CUresult Allocate(const graph::AllocParams& params,
                    std::shared_ptr<graph::Allocation>* out) override {
    return AllocateForGraph(params, out);
  }
  CUresult NewConditional(uint64_t, graph::ConditionalHandle* handle) override {
    return emu::NewConditional(handle);
  }
  CUresult NewExec(graph::Instance instance, std::shared_ptr<graph::Exec>* exec) override {
    return GraphExec::Make(std::move(instance), exec);
  }
  void Destroyed(std::shared_ptr<graph::UserObject> object) override {
    SetInHostFunction(true);
    object->Destroy();
    SetInHostFunction(false);
  }
};

CUresult DeviceHost::FindKernel(CUfunction function, CUkernel kernel, CUcontext context,
                                graph::KernelSite* site) {
  if (function != nullptr && kernel != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (function == nullptr && kernel == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Context> where;
  if (context != nullptr) {
    where = TheDevice().contexts.Find(Raw(context));
    if (where == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  }
  std::shared_ptr<Function> found;
  const uint64_t handle = function != nullptr ? Raw(function) : Raw(kernel);
  CUresult result = FindFunctionIn(where, As<CUfunction>(handle), &found);
  if (result == CUDA_SUCCESS) result = found->module()->code()->Refused(found->entry);
  if (result != CUDA_SUCCESS) return result;
  site->context = As<CUcontext>(found->context()->handle);
  site->param_bytes = found->info().param_bytes;
  for (const ParamInfo& param : found->info().params)
    site->places.push_back({param.offset, param.size});
  return CUDA_SUCCESS;
}

}  // namespace

// Never destroyed, like the device.
graph::Model& Graphs() {
  static auto* host = new DeviceHost;
  static auto* model = new graph::Model(host);
  return *model;
}

graph::StreamSite SiteOf(const Stream& stream) {
  return {stream.id, KindOf(stream.kind), As<CUcontext>(stream.context()->handle)};
}

CUresult CheckSynchronousWork(const Stream& stream) {
  if (!Graphs().captures.active()) return CUDA_SUCCESS;
  const CUresult waits = graph::CheckStreamWait(Graphs(), SiteOf(stream));
  return waits == CUDA_SUCCESS ? graph::CheckUnsafe(Graphs()) : waits;
}

CUresult CheckStreamWait(const Stream& stream) {
  if (!Graphs().captures.active()) return CUDA_SUCCESS;
  return graph::CheckStreamWait(Graphs(), SiteOf(stream));
}

CUresult CheckUnsafe() { return graph::CheckUnsafe(Graphs()); }

#include "rgpu_common/native/graph/graph_calls.inc"
#include "rgpu_common/native/graph/graph_calls_older.inc"

}  // namespace rgpu::emu
