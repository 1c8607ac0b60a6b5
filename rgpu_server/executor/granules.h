// Which granules of device memory plain allocations touch. The device gives out memory in granules,
// and small allocations share one. A lease is charged for every granule that one of its allocations
// touches.
#pragma once

#include <cstdint>
#include <unordered_map>

namespace rgpu::exec {

class Granules {
 public:
  explicit Granules(uint64_t bytes) : bytes_(bytes) {}
  uint64_t bytes() const { return bytes_; }

  // Returns how many bytes of granules the allocation at `base` adds to those already charged.
  // Allocations do not overlap, so only its first and last granule can be shared.
  uint64_t Add(uint64_t base, uint64_t bytes) {
    const auto [first, last] = Edges(base, bytes);
    uint64_t taken = Between(first, last);
    if (++edges_[first] == 1) ++taken;
    if (last != first && ++edges_[last] == 1) ++taken;
    return taken * bytes_;
  }
  // Returns the bytes of granules that no allocation touches once this one is gone.
  uint64_t Remove(uint64_t base, uint64_t bytes) {
    const auto [first, last] = Edges(base, bytes);
    uint64_t given = Between(first, last) + Drop(first);
    if (last != first) given += Drop(last);
    return given * bytes_;
  }

 private:
  struct Pair {
    uint64_t first;
    uint64_t last;
  };
  Pair Edges(uint64_t base, uint64_t bytes) const {
    return {base / bytes_, (base + bytes - 1) / bytes_};
  }
  static uint64_t Between(uint64_t first, uint64_t last) {
    return last - first > 1 ? last - first - 1 : 0;
  }
  uint64_t Drop(uint64_t granule) {
    const auto found = edges_.find(granule);
    if (found == edges_.end() || --found->second != 0) return 0;
    edges_.erase(found);
    return 1;
  }

  const uint64_t bytes_;
  std::unordered_map<uint64_t, uint32_t> edges_;
};

}  // namespace rgpu::exec
