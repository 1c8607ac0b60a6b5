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

}  // namespace rgpu::shim
