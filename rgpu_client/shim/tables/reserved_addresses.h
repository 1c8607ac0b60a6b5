// Addresses of cuMemAddressReserve. What is mapped in them is in the address map.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>

namespace rgpu::shim {

struct ReservedRange {
  uint64_t bytes = 0;
  // The addresses lie in no band, so this process has mapped them without access: no host memory
  // gets the same numbers.
  bool claimed = false;
};

class ReservedAddresses {
 public:
  // False: the range is empty or meets another one.
  bool Add(uint64_t base, ReservedRange range);
  // Removes the reservation of exactly [base, base + bytes).
  std::optional<ReservedRange> Take(uint64_t base, uint64_t bytes);
  // True if [base, base + bytes) lies in one reservation.
  bool Holds(uint64_t base, uint64_t bytes) const;

  // Held by each call of virtual memory management, while it sends its command too. So the tables
  // change in the order of the commands.
  std::mutex& calls() { return calls_; }

 private:
  std::mutex calls_;
  mutable std::shared_mutex mutex_;
  std::map<uint64_t, ReservedRange> ranges_;
};

}  // namespace rgpu::shim
