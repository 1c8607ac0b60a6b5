#include "rgpu_common/native/lease/array_pool.h"

#include <time.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/base/lengths.h"

namespace rgpu::lease {

namespace {

constexpr uint64_t kGranule = 64;  // small blocks
constexpr uint64_t kMostSmall = 64 << 10;
constexpr uint64_t kLargeGranule = 512;  // as the emulated device counts
constexpr uint64_t kPart = 64 << 10;
constexpr uint64_t kSlabBlocks = 16;  // at least

// Small blocks have four sizes between two powers of two, above the multiples of 64 up to 512.
uint64_t SmallBlock(uint64_t bytes) {
  if (bytes <= 8 * kGranule) return std::max(base::RoundedUp(bytes, kGranule), kGranule);
  return base::RoundedUp(bytes, std::bit_floor(bytes - 1) / 4);
}

// The number of a small block's size among all sizes.
size_t ClassOf(uint64_t block_bytes) {
  if (block_bytes <= 8 * kGranule) return block_bytes / kGranule - 1;
  const uint64_t power = std::bit_floor(block_bytes - 1);
  const auto doublings = static_cast<size_t>(std::bit_width(power) - std::bit_width(8 * kGranule));
  return 8 + doublings * 4 + (block_bytes - power) / (power / 4) - 1;
}

void* AsBlock(uint64_t address) { return reinterpret_cast<void*>(address); }
uint64_t AsAddress(const void* block) { return reinterpret_cast<uint64_t>(block); }

}  // namespace

ArrayPool::ArrayPool(Page* page, uint32_t slot, const ArrayDriver& driver)
    : page_(page),
      slot_(slot),
      driver_(driver),
      classes_(ClassOf(kMostSmall) + 1),
      wanted_([this, seen = CreditWanted(page)] { WatchWanted(seen); }) {}

ArrayPool::~ArrayPool() {
  ended_ = true;
  // The thread sleeps on the word that this changes.
  WantCredit(page_);
  wanted_.join();
  Trim();
}

uint64_t ArrayPool::Charged(uint64_t bytes) {
  if (bytes <= kMostSmall) return SmallBlock(bytes);
  return bytes > UINT64_MAX - kLargeGranule ? UINT64_MAX : base::RoundedUp(bytes, kLargeGranule);
}

void* ArrayPool::Allocate(uint64_t bytes) {
  const uint64_t block = Charged(bytes);
  const std::lock_guard lock(mutex_);
  const uint64_t address = block <= kMostSmall ? TakeSmall(block) : TakeLarge(block);
  if (address == 0) return nullptr;
  figures_.used += block;
  ++figures_.blocks;
  Publish();
  return AsBlock(address);
}

void ArrayPool::Free(void* block) {
  const std::lock_guard lock(mutex_);
  const Place place = Look(AsAddress(block), false);
  if (!place) return;
  figures_.used -= place.bytes;
  --figures_.blocks;
  if (place.slab != nullptr) {
    GiveSmall(place);
  } else {
    GiveLarge(place);
  }
  Publish();
}

void* ArrayPool::Reallocate(void* block, uint64_t bytes) {
  uint64_t base = 0;
  uint64_t before = 0;
  if (block != nullptr && !Find(AsAddress(block), &base, &before)) return nullptr;
  if (before == Charged(bytes)) return block;
  void* moved = Allocate(bytes);
  if (moved == nullptr || block == nullptr) return moved;
  std::memcpy(moved, block, std::min(before, bytes));
  Free(block);
  return moved;
}

bool ArrayPool::Find(uint64_t address, uint64_t* base, uint64_t* bytes) {
  const std::lock_guard lock(mutex_);
  const Place place = Look(address, true);
  *base = place.base;
  *bytes = place.bytes;
  return static_cast<bool>(place);
}

void ArrayPool::Trim() {
  const std::lock_guard lock(mutex_);
  TrimLocked();
  Publish();
}

ArrayPool::Figures ArrayPool::figures() {
  const std::lock_guard lock(mutex_);
  return figures_;
}

// Small blocks

uint64_t ArrayPool::TakeSmall(uint64_t bytes) {
  Class& of = classes_[ClassOf(bytes)];
  Slab* slab = of.roomy.empty() ? MakeSlab(static_cast<uint32_t>(bytes)) : of.roomy.back();
  if (slab == nullptr) return 0;
  if (slab->used == 0) --of.empty;
  uint32_t block = slab->fresh;
  if (slab->free.empty()) {
    ++slab->fresh;
  } else {
    block = slab->free.back();
    slab->free.pop_back();
  }
  slab->in_use[block] = true;
  ++slab->used;
  if (slab->full()) Unlist(slab);
  return slab->base + uint64_t{block} * slab->block_bytes;
}

void ArrayPool::GiveSmall(const Place& place) {
  Slab* slab = place.slab;
  Class& of = classes_[ClassOf(slab->block_bytes)];
  const bool was_full = slab->full();
  slab->in_use[place.block] = false;
  slab->free.push_back(place.block);
  --slab->used;
  if (was_full) List(slab);
  if (slab->used != 0) return;
  // One slab of each size stays, for the next block.
  if (++of.empty > 1) DropSlab(slab);
}

// Returns a slab without a block in use, in the list of its class.
ArrayPool::Slab* ArrayPool::MakeSlab(uint32_t block_bytes) {
  const uint64_t bytes = base::RoundedUp(std::max(kPart, kSlabBlocks * block_bytes), kPart);
  const uint64_t base = FromDriver(bytes);
  if (base == 0) return nullptr;
  auto made = std::make_unique<Slab>();
  Slab* slab = made.get();
  slab->base = base;
  slab->bytes = bytes;
  slab->block_bytes = block_bytes;
  slab->blocks = static_cast<uint32_t>(bytes / block_bytes);
  slab->in_use.resize(slab->blocks);
  slabs_.emplace(slab, std::move(made));
  for (uint64_t part = base / kPart; part <= (base + bytes - 1) / kPart; ++part) {
    auto& two = parts_[part];
    (two[0] == nullptr ? two[0] : two[1]) = slab;
  }
  List(slab);
  ++classes_[ClassOf(block_bytes)].empty;
  return slab;
}

// Gives a slab without a block in use back.
void ArrayPool::DropSlab(Slab* slab) {
  --classes_[ClassOf(slab->block_bytes)].empty;
  Unlist(slab);
  for (uint64_t part = slab->base / kPart; part <= (slab->base + slab->bytes - 1) / kPart; ++part) {
    const auto found = parts_.find(part);
    auto& two = found->second;
    if (two[0] == slab) two[0] = two[1];
    two[1] = nullptr;
    if (two[0] == nullptr) parts_.erase(found);
  }
  ToDriver(slab->base, slab->bytes);
  slabs_.erase(slab);
}

void ArrayPool::List(Slab* slab) {
  auto& roomy = classes_[ClassOf(slab->block_bytes)].roomy;
  slab->listed_at = roomy.size();
  roomy.push_back(slab);
}

void ArrayPool::Unlist(Slab* slab) {
  auto& roomy = classes_[ClassOf(slab->block_bytes)].roomy;
  roomy[slab->listed_at] = roomy.back();
  roomy[slab->listed_at]->listed_at = slab->listed_at;
  roomy.pop_back();
  slab->listed_at = Slab::kUnlisted;
}

// Large blocks

uint64_t ArrayPool::TakeLarge(uint64_t bytes) {
  const auto found = cached_.find(bytes);
  uint64_t base = 0;
  if (found != cached_.end()) {
    base = found->second.back();
    found->second.pop_back();
    if (found->second.empty()) cached_.erase(found);
    cached_bytes_ -= bytes;
  } else {
    base = FromDriver(bytes);
  }
  if (base != 0) large_.emplace(base, bytes);
  return base;
}

void ArrayPool::GiveLarge(const Place& place) {
  large_.erase(place.base);
  if (place.bytes > MostCached() - std::min(cached_bytes_, MostCached())) {
    ToDriver(place.base, place.bytes);
    return;
  }
  cached_[place.bytes].push_back(place.base);
  cached_bytes_ += place.bytes;
}

uint64_t ArrayPool::MostCached() const { return page_->memory_limit_bytes.load() / 4; }

// The block in use that begins at an address, or with `within` the one that holds the address.
ArrayPool::Place ArrayPool::Look(uint64_t address, bool within) {
  if (const auto part = parts_.find(address / kPart); part != parts_.end()) {
    for (Slab* slab : part->second) {
      if (slab == nullptr || address - slab->base >= slab->bytes) continue;
      const uint64_t offset = address - slab->base;
      const auto block = static_cast<uint32_t>(offset / slab->block_bytes);
      const bool begins = offset % slab->block_bytes == 0;
      if (block >= slab->blocks || !slab->in_use[block] || (!begins && !within)) return {};
      const uint64_t base = slab->base + uint64_t{block} * slab->block_bytes;
      return {slab, block, base, slab->block_bytes};
    }
  }
  auto found = large_.upper_bound(address);
  if (found == large_.begin()) return {};
  --found;
  const uint64_t offset = address - found->first;
  if (offset >= found->second || (offset != 0 && !within)) return {};
  return {nullptr, 0, found->first, found->second};
}

// The driver and the ledger

uint64_t ArrayPool::FromDriver(uint64_t bytes) {
  if (!Charge(bytes)) return 0;
  uint64_t address = 0;
  if (driver_.allocate == nullptr) {
    address = AsAddress(std::aligned_alloc(kGranule, base::RoundedUp(bytes, kGranule)));
  } else {
    driver_.make_current(driver_.context);
    if (driver_.allocate(&address, bytes) != 0) address = 0;
  }
  if (address == 0) {
    Release(page_, slot_, bytes);
    return 0;
  }
  RaisePeak(page_, slot_);
  figures_.charged += bytes;
  return address;
}

void ArrayPool::ToDriver(uint64_t address, uint64_t bytes) {
  if (driver_.release == nullptr) {
    std::free(AsBlock(address));
  } else {
    driver_.make_current(driver_.context);
    driver_.release(address);
  }
  Release(page_, slot_, bytes);
  figures_.charged -= bytes;
}

bool ArrayPool::Charge(uint64_t bytes) {
  if (TryCharge(page_, slot_, bytes, Peak::kLater)) return true;
  TrimLocked();
  Publish();
  if (bytes > page_->memory_limit_bytes.load())
    return lease::Charge(page_, slot_, bytes, Peak::kLater);
  mutex_.unlock();
  const bool charged = driver_.charge != nullptr ? driver_.charge(bytes) != 0 : AwaitCharge(bytes);
  mutex_.lock();
  return charged;
}

bool ArrayPool::AwaitCharge(uint64_t bytes) const {
  const auto charge = [&] { return TryCharge(page_, slot_, bytes, Peak::kLater); };
  // The second one counts the refusal.
  return WaitForOthers(page_, slot_, charge) || lease::Charge(page_, slot_, bytes, Peak::kLater);
}

void ArrayPool::TrimLocked() {
  for (const auto& [bytes, bases] : cached_) {
    for (const uint64_t base : bases) ToDriver(base, bytes);
  }
  cached_.clear();
  cached_bytes_ = 0;
  std::vector<Slab*> empty;
  for (const auto& [slab, owned] : slabs_) {
    if (slab->used == 0) empty.push_back(slab);
  }
  for (Slab* slab : empty) DropSlab(slab);
}

void ArrayPool::Publish() { SetCredit(page_, slot_, figures_.charged - figures_.used); }

void ArrayPool::WatchWanted(uint32_t seen) {
  while (!ended_) {
    WaitCreditWanted(page_, seen);
    const uint32_t now = CreditWanted(page_);
    if (now == seen) continue;
    seen = now;
    Trim();
  }
}

}  // namespace rgpu::lease
