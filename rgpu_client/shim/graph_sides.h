// What an executable graph needs of this process while it runs: the host sides of its copies, and
// its host functions. A launch keeps what there is when it is posted.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "rgpu_client/shim/host_call.h"
#include "rgpu_client/shim/host_region.h"

namespace rgpu::shim {

struct GraphSides {
  // A host side.
  struct Side {
    HostRegion region;
    uint64_t offset = 0;  // of its first byte among the bytes of all host sides of the graph
    bool to_device = false;
  };
  std::vector<Side> sides;             // by offset
  std::map<uint32_t, HostCall> calls;  // by the number of the node
  uint64_t total_bytes = 0;

  bool empty() const { return sides.empty() && calls.empty(); }
  void Add(const HostRegion& region, bool to_device) {
    sides.push_back({region, total_bytes, to_device});
    total_bytes += region.bytes();
  }
  // The side in which all of [offset, offset + bytes) lies. Null: there is none.
  const Side* Find(uint64_t offset, uint64_t bytes) const;
  bool Meets(uint64_t address, uint64_t bytes) const;
};

}  // namespace rgpu::shim
