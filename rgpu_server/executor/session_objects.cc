#include "rgpu_server/executor/session_objects.h"

namespace rgpu::exec {

bool SessionObjects::has_streams() const {
  if (streams.size() > 0) return true;
  bool found = false;
  contexts.ForEach([&](const auto& context) { found |= !context->per_thread.empty(); });
  return found;
}

uint64_t SessionObjects::ForgetContext(const std::shared_ptr<Context>& context,
                                       const Forget& forget) {
  uint64_t charged = 0;
  const uint32_t id = context->id;
  const auto lies_in = [&](const auto& object) {
    if (object.context != context) return false;
    if constexpr (requires { object.charged_bytes; }) charged += object.charged_bytes;
    return true;
  };
  modules.EraseIf(lies_in);
  libraries.EraseIf(lies_in);
  links.EraseIf(lies_in);
  const auto belongs = [&](const auto& object) { return object.context == id; };
  functions.EraseIf(belongs);
  kernels.EraseIf(belongs);
  events.EraseIf(belongs);
  streams.EraseIf([&](const Stream& stream) { return stream.context == context.get(); });
  ranges.EraseIf([&](uint64_t base, const Range& range) {
    if (range.context != id) return false;
    if (range.kind == Range::Kind::kPlain) charged += forget(base, range);
    return true;
  });
  return charged;
}

}  // namespace rgpu::exec
