#include "rgpu_emu/device/pool.h"

#include <algorithm>
#include <utility>

#include "rgpu_emu/device/device.h"

namespace rgpu::emu {
namespace {

uint64_t Charged(const AllocationRef& allocation) {
  return (allocation->bytes + kGranuleBytes - 1) / kGranuleBytes * kGranuleBytes;
}

// A block serves only requests of at least half its pages, so that small requests do not use up
// large blocks.
bool Fits(const AllocationRef& block, uint64_t bytes) {
  const uint64_t pages = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  return block->map_bytes >= pages && block->map_bytes / 2 <= pages;
}

// Returns a new allocation on the same pages, with the size, the id and the end of the new request.
AllocationRef Reuse(const AllocationRef& block, uint64_t bytes, uint64_t context) {
  static std::atomic<uint64_t> next_id{uint64_t{1} << 48};
  auto fresh = std::make_shared<Allocation>();
  fresh->bytes = bytes;
  fresh->map_base = block->map_base;
  fresh->map_bytes = block->map_bytes;
  fresh->gap_bytes = block->gap_bytes;
  fresh->base = block->map_base + block->map_bytes -
                (bytes + kGranuleBytes - 1) / kGranuleBytes * kGranuleBytes;
  fresh->kind = MemoryKind::kPool;
  fresh->context = context;
  fresh->id = next_id.fetch_add(1);
  return fresh;
}

}  // namespace

// Moves freed blocks to the cache once their free has been carried out: then any stream may use
// them.
void Pool::Settle() {
  for (auto it = freed_.begin(); it != freed_.end();) {
    if (!AllDone(it->after)) {
      ++it;
      continue;
    }
    used_ -= Charged(it->memory);
    cached_.push_back(std::move(it->memory));
    it = freed_.erase(it);
  }
}

AllocationRef Pool::Take(uint64_t bytes, const Stream* stream) {
  for (auto it = cached_.begin(); it != cached_.end(); ++it) {
    if (!Fits(*it, bytes)) continue;
    AllocationRef block = std::move(*it);
    cached_.erase(it);
    return block;
  }
  for (auto it = freed_.begin(); it != freed_.end(); ++it) {
    if (it->stream.get() != stream || !Fits(it->memory, bytes)) continue;
    AllocationRef block = std::move(it->memory);
    freed_.erase(it);
    used_ -= Charged(block);
    return block;
  }
  return nullptr;
}

// Takes a block that another stream will free. The allocating stream must then wait for that free.
AllocationRef Pool::TakeWaiting(uint64_t bytes, Fences* after) {
  if (reuse_[2] == 0) return nullptr;
  for (auto it = freed_.begin(); it != freed_.end(); ++it) {
    if (!Fits(it->memory, bytes)) continue;
    AllocationRef block = std::move(it->memory);
    *after = std::move(it->after);
    freed_.erase(it);
    used_ -= Charged(block);
    return block;
  }
  return nullptr;
}

AllocationRef Pool::Grow(uint64_t bytes, uint64_t context) {
  Arena& arena = TheDevice().arena;
  const uint64_t limit = max_bytes_ == 0 ? arena.capacity() : max_bytes_;
  const uint64_t pages = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  if (pages > limit) return nullptr;
  if (reserved_ + pages > limit) {
    for (const AllocationRef& block : Cut(limit - pages)) arena.Release(block);
  }
  if (reserved_ + pages > limit) return nullptr;
  AllocationRef memory = arena.Allocate(bytes, MemoryKind::kPool, context);
  if (memory == nullptr) {
    for (const AllocationRef& block : Cut(0)) arena.Release(block);
    TheDevice().limbo.Reap();
    memory = arena.Allocate(bytes, MemoryKind::kPool, context);
  }
  if (memory == nullptr) return nullptr;
  arena.Hide(memory);
  reserved_ += memory->map_bytes;
  reserved_high_ = std::max(reserved_high_, reserved_);
  return memory;
}

void Pool::Count(const AllocationRef& allocation) {
  allocation->pool = shared_from_this();
  used_ += Charged(allocation);
  used_high_ = std::max(used_high_, used_);
}

CUresult Pool::Allocate(uint64_t bytes, const std::shared_ptr<Stream>& stream, uint64_t* address) {
  const uint64_t context = stream->context()->handle;
  if (bytes > TheDevice().arena.bytes()) return CUDA_ERROR_OUT_OF_MEMORY;
  Fences after;
  AllocationRef fresh;
  {
    const std::lock_guard lock(mutex_);
    Settle();
    AllocationRef block = Take(bytes, stream.get());
    if (block == nullptr) {
      fresh = Grow(bytes, context);
      if (fresh == nullptr) block = TakeWaiting(bytes, &after);
    }
    if (block != nullptr) fresh = Reuse(block, bytes, context);
    if (fresh == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    Count(fresh);
  }
  if (!after.empty()) {
    Command wait;
    wait.run = [] { return CUDA_SUCCESS; };
    wait.after = after;
    const CUresult pushed = stream->Push(std::move(wait));
    if (pushed != CUDA_SUCCESS) {
      Free(fresh, nullptr, std::move(after));
      return pushed;
    }
  }
  TheDevice().arena.Show(fresh);
  *address = fresh->base;
  return CUDA_SUCCESS;
}

void Pool::Free(const AllocationRef& allocation, const std::shared_ptr<Stream>& stream,
                Fences after) {
  const std::lock_guard lock(mutex_);
  if (retired_) {
    used_ -= Charged(allocation);
    reserved_ -= allocation->map_bytes;
    TheDevice().limbo.Retire(allocation, std::move(after));
    return;
  }
  freed_.push_back({allocation, stream, std::move(after)});
}

// Removes cached blocks, largest first, until at most `keep` bytes are reserved.
std::vector<AllocationRef> Pool::Cut(uint64_t keep) {
  std::vector<AllocationRef> out;
  Settle();
  std::sort(cached_.begin(), cached_.end(), [](const AllocationRef& a, const AllocationRef& b) {
    return a->map_bytes < b->map_bytes;
  });
  while (reserved_ > keep && !cached_.empty()) {
    reserved_ -= cached_.back()->map_bytes;
    out.push_back(std::move(cached_.back()));
    cached_.pop_back();
  }
  return out;
}

void Pool::TrimTo(uint64_t keep) {
  std::vector<AllocationRef> gone;
  {
    const std::lock_guard lock(mutex_);
    gone = Cut(keep);
  }
  for (const AllocationRef& block : gone) TheDevice().arena.Release(block);
}

void Pool::TrimToThreshold() {
  uint64_t keep = 0;
  {
    const std::lock_guard lock(mutex_);
    keep = threshold_;
  }
  TrimTo(keep);
}

void Pool::Retire() {
  std::vector<Block> freed;
  {
    const std::lock_guard lock(mutex_);
    retired_ = true;
    freed = std::move(freed_);
    freed_.clear();
    for (const Block& block : freed) {
      used_ -= Charged(block.memory);
      reserved_ -= block.memory->map_bytes;
    }
  }
  for (Block& block : freed) TheDevice().limbo.Retire(block.memory, std::move(block.after));
  TrimTo(0);
}

CUresult Pool::Set(CUmemPool_attribute attribute, const void* value) {
  const std::lock_guard lock(mutex_);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      reuse_[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] =
          *static_cast<const int*>(value) != 0;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      threshold_ = *static_cast<const cuuint64_t*>(value);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      if (*static_cast<const cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
      reserved_high_ = reserved_;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      if (*static_cast<const cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
      used_high_ = used_;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult Pool::Get(CUmemPool_attribute attribute, void* value) {
  const std::lock_guard lock(mutex_);
  Settle();
  auto* number = static_cast<cuuint64_t*>(value);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      *static_cast<int*>(value) =
          reuse_[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      *number = threshold_;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      *number = reserved_;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      *number = reserved_high_;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      *number = used_;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      *number = used_high_;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

void TrimPoolsAfterSync() {
  TheDevice().pools.ForEach([](const std::shared_ptr<Pool>& pool) { pool->TrimToThreshold(); });
}

void TrimPools(uint64_t keep) {
  TheDevice().pools.ForEach([keep](const std::shared_ptr<Pool>& pool) { pool->TrimTo(keep); });
}

}  // namespace rgpu::emu
