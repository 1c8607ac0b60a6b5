#include "rgpu_client/shim/graph_sides.h"

#include <algorithm>

namespace rgpu::shim {

const GraphSides::Side* GraphSides::Find(uint64_t offset, uint64_t bytes) const {
  const auto behind = std::ranges::upper_bound(sides, offset, {}, &Side::offset);
  if (behind == sides.begin()) return nullptr;
  const Side& side = behind[-1];
  const uint64_t within = offset - side.offset;
  const uint64_t total = side.region.bytes();
  return within <= total && bytes <= total - within ? &side : nullptr;
}

bool GraphSides::Meets(uint64_t address, uint64_t bytes) const {
  return std::ranges::any_of(sides,
                             [&](const Side& side) { return side.region.Meets(address, bytes); });
}

const GraphSides::Side* GraphRun::Move(uint64_t offset, uint64_t bytes, bool to_device) {
  const GraphSides::Side* side = sides_->Find(offset, bytes);
  if (side == nullptr || side->to_device != to_device) return nullptr;
  uint64_t& moved = moved_[side];
  if (offset - side->offset != moved) return nullptr;
  moved += bytes;
  return side;
}

const HostCall* GraphRun::Call(uint32_t node) {
  const auto call = sides_->calls.find(node);
  return call != sides_->calls.end() && called_.insert(node).second ? &call->second : nullptr;
}

}  // namespace rgpu::shim
