// What the calls about memory of cuMemCreate have in common.
#pragma once

#include <mutex>

#include "rgpu_client/shim/calls/here.h"

namespace rgpu::shim {

// These calls need no context. If there is a current one, it travels, because errors are kept by
// it.
inline Issuer AnyIssuer(const Here& here) {
  uint32_t context = 0;
  if (!here.thread->stack.empty() && here.thread->stack.back() != nullptr) {
    context = static_cast<uint32_t>(here.thread->stack.back()->id);
  }
  return {here.thread, SessionOfContext(context) == here.session ? context : 0};
}

inline std::unique_lock<std::mutex> LockMemory(const Here& here) {
  return std::unique_lock(here.session->reserved().calls());
}

// The memory of a handle that has a reference.
inline Memory* FindMemory(const Here& here, CUmemGenericAllocationHandle handle) {
  auto* memory = here.session->handles().Find<Memory>(handle);
  return memory != nullptr && memory->references != 0 ? memory : nullptr;
}

}  // namespace rgpu::shim
