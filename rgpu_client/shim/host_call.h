// A host function or callback of the program.
#pragma once

#include <memory>

#include "gen/cuda_abi.gen.h"

namespace rgpu::shim {

// One of `function` and `callback` is null.
struct HostCall {
  CUhostFn function = nullptr;
  CUstreamCallback callback = nullptr;  // also runs after an error, which it is told of
  CUstream stream = nullptr;            // as the program named it, for the callback
  void* data = nullptr;
  std::shared_ptr<const void> keep = nullptr;  // of `data`, if it is ours

  explicit operator bool() const { return function != nullptr || callback != nullptr; }
};

}  // namespace rgpu::shim
