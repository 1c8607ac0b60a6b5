// What an executable graph needs of this process while it runs: the host sides of its copies, and
// its host functions. A launch keeps what there is when it is posted.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
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

// One launch: how far the bytes of each side have moved, and which host functions were called. Only
// the thread that reads the channel changes it.
class GraphRun {
 public:
  explicit GraphRun(std::shared_ptr<const GraphSides> sides) : sides_(std::move(sides)) {}

  // The side whose next bytes are [offset, offset + bytes); they count as moved from now on. Null:
  // they are not the next ones of a side in this direction. Every byte moves at most once.
  const GraphSides::Side* Move(uint64_t offset, uint64_t bytes, bool to_device);
  // The function of a host node, which counts as called from now on. Null: the node has none, or
  // was called before.
  const HostCall* Call(uint32_t node);
  bool Meets(uint64_t address, uint64_t bytes) const { return sides_->Meets(address, bytes); }

 private:
  const std::shared_ptr<const GraphSides> sides_;
  std::map<const GraphSides::Side*, uint64_t> moved_;
  std::set<uint32_t> called_;
};

}  // namespace rgpu::shim
