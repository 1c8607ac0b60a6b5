// Virtual memory management: the addresses that the client has reserved, the memory that it has
// created, and the mappings between them. All functions are called with the executor's lock held.
//
// A mapping that the client takes away is gone from the tables at once. The driver keeps it until
// the work issued before is complete. Until then nothing else is mapped at its addresses, and its
// memory stays charged.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "gen/cuda_abi.gen.h"
#include "rgpu_server/executor/exports.h"

namespace rgpu::exec {

struct Point;
using Fences = std::vector<std::shared_ptr<Point>>;

// Memory of cuMemCreate.
struct MappableMemory {
  CUmemGenericAllocationHandle handle = 0;
  uint64_t bytes = 0;                             // also its charge, if it is the session's own
  bool shareable = false;                         // other processes may get it
  std::shared_ptr<Export> exported;               // null: no other process has its token
  std::optional<Import> import;                   // it is another session's
  uint32_t mapped = 0;                            // mappings in the table
  uint32_t held = 0;                              // mappings that the driver has
  bool released = false;                          // by the worker; mappings keep it
  std::shared_ptr<const Fences> unmapped_behind;  // null, or the fences of the last unmap
};

// An address range of cuMemAddressReserve.
struct Reservation {
  uint64_t bytes = 0;
  uint32_t held = 0;  // mappings that the driver has
  bool freed = false;
};

struct Mapping {
  uint64_t bytes = 0;
  std::shared_ptr<MappableMemory> memory;
  std::shared_ptr<Reservation> reservation;
  uint64_t reserved_at = 0;
  bool busy = false;  // a call that changes it has released the lock
};

class VirtualMemory {
 public:
  using Mappings = std::map<uint64_t, Mapping>;

  // How many reservations and mappings there are.
  size_t size() const { return reserved_.size() + mappings_.size(); }
  uint64_t reserved_bytes() const { return reserved_bytes_; }

  void Reserve(uint64_t base, uint64_t bytes);
  // Takes the reservation of exactly [base, base + bytes) out of the table. Null: there is none, or
  // something is mapped in it.
  std::shared_ptr<Reservation> Take(uint64_t base, uint64_t bytes);

  // Adds a mapping. False: the range lies in no reservation, or meets another mapping.
  bool Map(uint64_t base, uint64_t bytes, const std::shared_ptr<MappableMemory>& memory);
  // Removes a mapping that the driver has refused.
  void Forget(uint64_t base);
  // The mappings that together are exactly [base, base + bytes): first and end. Both are the end of
  // the table if there are none, or one of them is busy.
  std::pair<Mappings::iterator, Mappings::iterator> Tiling(uint64_t base, uint64_t bytes);
  Mapping Remove(uint64_t base);
  Mapping* Find(uint64_t base);

  // Addresses that the driver still has mapped although the client has unmapped them.
  void AddLeaving(uint64_t base, uint64_t bytes) { leaving_.push_back({base, bytes}); }
  void RemoveLeaving(uint64_t base);
  bool IsLeaving(uint64_t base, uint64_t bytes) const;

 private:
  struct Span {
    uint64_t base;
    uint64_t bytes;
  };

  bool Meets(uint64_t base, uint64_t bytes) const;

  std::map<uint64_t, std::shared_ptr<Reservation>> reserved_;
  uint64_t reserved_bytes_ = 0;
  Mappings mappings_;
  std::vector<Span> leaving_;
};

}  // namespace rgpu::exec
