#include "rgpu_client/shim/graphs/home.h"

#include "rgpu_common/native/base/error_log.h"

namespace rgpu::shim {
namespace {

// What the parameters of a node name: a context, by its handle. 0: none.
struct NamedContext {
  uint64_t operator()(const graph::KernelParams& kernel) const { return Of(kernel.context); }
  uint64_t operator()(const graph::CopyParams& copy) const { return Of(copy.context); }
  uint64_t operator()(const graph::SetParams& set) const { return Of(set.set.ctx); }
  uint64_t operator()(const graph::BatchParams& batch) const { return Of(batch.context); }
  uint64_t operator()(const graph::ConditionalParams& node) const { return Of(node.context); }
  uint64_t operator()(const graph::RecordParams& record) const { return OfEvent(record.event); }
  uint64_t operator()(const graph::WaitParams& wait) const { return OfEvent(wait.event); }
  uint64_t operator()(const graph::AllocParams& alloc) const {
    const uint64_t address = alloc.allocation->address;
    const auto range = SessionOfAddress(address)->addresses().Find(address);
    return range ? range->context : 0;
  }
  template <typename Other>
  uint64_t operator()(const Other&) const {
    return 0;
  }

 private:
  static uint64_t Of(CUcontext context) { return HandleValue(context); }
  static uint64_t OfEvent(CUevent handle) {
    const uint64_t id = HandleValue(handle);
    const Event* event = SessionOf(id)->handles().Find<Event>(id);
    return event == nullptr ? 0 : event->context;
  }
};

}  // namespace

CUresult HomeOf(const graph::Instance& instance, Here* here) {
  const CUresult status = ContextHere(here);
  if (LiveSessions().size() < 2) return status;
  uint64_t home = 0;
  for (const graph::Instance::Entry& entry : instance.nodes) {
    const uint64_t named = std::visit(NamedContext{}, entry.node->params);
    if (named == 0) continue;
    if (home == 0) home = named;
    if (SessionOfContext(home) == SessionOfContext(named)) continue;
    base::LogSentence("a graph cannot have nodes of several devices");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (home == 0 || (status == CUDA_SUCCESS && SessionOfContext(home) == here->session)) {
    return status;
  }
  *here = InContextHere(MakeHandle<CUcontext>(home));
  here->context = here->session->handles().Find<Context>(home);
  return here->context != nullptr && here->context->alive ? CUDA_SUCCESS
                                                          : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

}  // namespace rgpu::shim
