// The memory of a session's arrays: charged in the lease's page before it is given.
//
// Small blocks are cut from slabs, so that a small array costs no call of the driver. Large blocks
// that were freed are kept for the next of the same size. What is charged and not used is *credit*
// (page.h): it is given back when another process of the lease needs memory, or when a charge of
// this one is refused.
//
// All that the pool knows of its blocks lies outside of them: kernels of the session can write
// there. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "rgpu_common/native/lease/page.h"

namespace rgpu::lease {

// Where memory comes from: a device library's functions, all of which return 0 if they succeed.
struct ArrayDriver {
  int (*allocate)(uint64_t* address, size_t bytes) = nullptr;
  int (*release)(uint64_t address) = nullptr;
  int (*make_current)(void* context) = nullptr;
  void* context = nullptr;
  // Charges the slot where other sessions of the lease may be giving memory back; false: the lease
  // is full. Called without the pool's lock, because it may wait. Null: the pool waits itself.
  int (*charge)(uint64_t bytes) = nullptr;
};

class ArrayPool {
 public:
  // Null functions in `driver`: memory of this process.
  ArrayPool(Page* page, uint32_t slot, const ArrayDriver& driver);
  // No block is in use.
  ~ArrayPool();
  ArrayPool(const ArrayPool&) = delete;
  ArrayPool& operator=(const ArrayPool&) = delete;

  // What a block of so many bytes is charged.
  static uint64_t Charged(uint64_t bytes);

  // Returns a block that is aligned to 64 bytes at least. Null: the lease or the device is full.
  void* Allocate(uint64_t bytes);
  // Does nothing if this is no block of the pool.
  void Free(void* block);
  // Moves what fits. Null: nothing has changed.
  void* Reallocate(void* block, uint64_t bytes);
  // The whole block in which an address lies. False: it lies in none that is in use.
  bool Find(uint64_t address, uint64_t* base, uint64_t* bytes);
  // Gives everything back that is not in use.
  void Trim();

  struct Figures {
    uint64_t used = 0;     // by blocks that are in use
    uint64_t charged = 0;  // that, and credit
    uint64_t blocks = 0;   // in use
  };
  Figures figures();

 private:
  struct Slab {
    uint64_t base = 0;
    uint64_t bytes = 0;
    uint32_t block_bytes = 0;
    uint32_t blocks = 0;
    uint32_t fresh = 0;            // blocks from here on were never used
    std::vector<uint32_t> free;    // blocks before `fresh` that are free
    std::vector<bool> in_use;      // by block
    uint32_t used = 0;             // blocks in use
    size_t listed_at = kUnlisted;  // in the list of slabs of its class that have room
    static constexpr size_t kUnlisted = SIZE_MAX;
    bool full() const { return used == blocks; }
  };
  struct Class {
    std::vector<Slab*> roomy;
    size_t empty = 0;  // of those, slabs without a block in use
  };
  // A slab and its block, or a large block (slab null).
  struct Place {
    Slab* slab = nullptr;
    uint32_t block = 0;
    uint64_t base = 0;
    uint64_t bytes = 0;
    explicit operator bool() const { return bytes != 0; }
  };

  // All with the lock, which `Charge` gives up while it waits: so a caller keeps nothing of what it
  // has read before.
  uint64_t TakeSmall(uint64_t bytes);
  uint64_t TakeLarge(uint64_t bytes);
  void GiveSmall(const Place& place);
  void GiveLarge(const Place& place);
  Slab* MakeSlab(uint32_t block_bytes);
  void DropSlab(Slab* slab);
  Place Look(uint64_t address, bool within);
  void List(Slab* slab);
  void Unlist(Slab* slab);
  void TrimLocked();
  void Publish();
  uint64_t FromDriver(uint64_t bytes);
  void ToDriver(uint64_t address, uint64_t bytes);
  bool Charge(uint64_t bytes);
  bool AwaitCharge(uint64_t bytes) const;  // without the lock
  uint64_t MostCached() const;
  // The thread that gives credit back when it is wanted.
  void WatchWanted(uint32_t seen);

  Page* const page_;
  const uint32_t slot_;
  const ArrayDriver driver_;

  std::mutex mutex_;
  std::vector<Class> classes_;
  // By the parts of 64 KiB of the address space; a slab is as large at least, so there are two at
  // most in one part.
  std::unordered_map<uint64_t, std::array<Slab*, 2>> parts_;
  std::unordered_map<Slab*, std::unique_ptr<Slab>> slabs_;
  std::map<uint64_t, uint64_t> large_;                          // in use: base -> bytes
  std::unordered_map<uint64_t, std::vector<uint64_t>> cached_;  // bytes -> bases
  uint64_t cached_bytes_ = 0;
  Figures figures_;

  std::atomic<bool> ended_{false};
  std::thread wanted_;
};

}  // namespace rgpu::lease
