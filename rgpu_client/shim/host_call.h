// A host function or callback of the program, or a place of ours in the order of streams.
#pragma once

#include <memory>

#include "gen/cuda_abi.gen.h"
#include "rgpu_client/shim/order_point.h"

namespace rgpu::shim {

// All but one of `function`, `callback` and `point` are null.
struct HostCall {
  CUhostFn function = nullptr;
  CUstreamCallback callback = nullptr;  // also runs after an error, which it is told of
  CUstream stream = nullptr;            // as the program named it, for the callback
  void* data = nullptr;
  std::shared_ptr<const void> keep = nullptr;  // of `data`, if it is ours

  std::shared_ptr<OrderPoint> point = nullptr;
  bool waits = false;  // the stream waits for the point; else it comes to the point here

  explicit operator bool() const {
    return function != nullptr || callback != nullptr || point != nullptr;
  }
  // True if it is told of the session's failure too.
  bool hears_failures() const { return callback != nullptr || point != nullptr; }
};

}  // namespace rgpu::shim
