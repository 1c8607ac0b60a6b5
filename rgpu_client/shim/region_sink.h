// Copies the bytes of DATA frames to rows of host memory.
#pragma once

#include "rgpu_client/shim/channel.h"
#include "rgpu_client/shim/host_region.h"

namespace rgpu::shim {

class RegionSink final : public ReplySink {
 public:
  explicit RegionSink(const HostRegion& region) : region_(region) {}

  bool OnData(uint64_t offset, uint32_t bytes, transport::FrameReader& reader) override {
    const uint64_t total = region_.bytes();
    if (offset > total || bytes > total - offset) return false;
    const transport::BulkState state = Land(region_, offset, bytes, reader);
    if (state == transport::BulkState::kFault) fault_ = true;
    landed_ += bytes;
    return state != transport::BulkState::kClosed;
  }
  bool fault() const { return fault_; }
  bool complete() const { return landed_ == region_.bytes(); }

 private:
  const HostRegion region_;
  uint64_t landed_ = 0;
  bool fault_ = false;
};

}  // namespace rgpu::shim
