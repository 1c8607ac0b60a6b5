// The memory of a Python worker's arrays.
#include <cstring>
#include <system_error>

#include "rgpu_common/native/lease/array_pool.h"
#include "rgpu_common/native/native_worker_abi.h"

namespace {

using rgpu::lease::ArrayPool;

ArrayPool* AsPool(void* pool) { return static_cast<ArrayPool*>(pool); }

}  // namespace

void* rgpu_pool_open(void* page, uint32_t slot, const rgpu_pool_driver* driver) {
  if (slot >= rgpu::lease::kSlots) return nullptr;
  const rgpu::lease::ArrayDriver from = {driver->allocate, driver->release, driver->make_current,
                                         driver->context, driver->charge};
  try {
    return new ArrayPool(static_cast<rgpu::lease::Page*>(page), slot, from);
  } catch (const std::system_error&) {
    return nullptr;
  }
}

int rgpu_pool_close(void* pool) {
  if (AsPool(pool)->figures().blocks != 0) return 0;
  delete AsPool(pool);
  return 1;
}

uint64_t rgpu_pool_charged(uint64_t bytes) { return ArrayPool::Charged(bytes); }

void* rgpu_pool_allocate(void* pool, uint64_t bytes) { return AsPool(pool)->Allocate(bytes); }

void rgpu_pool_free(void* pool, void* block) { AsPool(pool)->Free(block); }

void rgpu_pool_trim(void* pool) { AsPool(pool)->Trim(); }

int rgpu_pool_find(void* pool, uint64_t address, uint64_t* base, uint64_t* bytes) {
  return AsPool(pool)->Find(address, base, bytes) ? 1 : 0;
}

void rgpu_pool_figures(void* pool, uint64_t values[3]) {
  const ArrayPool::Figures figures = AsPool(pool)->figures();
  values[0] = figures.used;
  values[1] = figures.charged;
  values[2] = figures.blocks;
}

void* rgpu_pool_numpy_malloc(void* pool, size_t bytes) { return AsPool(pool)->Allocate(bytes); }

void* rgpu_pool_numpy_calloc(void* pool, size_t count, size_t each) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(count, each, &bytes)) return nullptr;
  void* block = AsPool(pool)->Allocate(bytes);
  if (block != nullptr) std::memset(block, 0, bytes);
  return block;
}

void* rgpu_pool_numpy_realloc(void* pool, void* block, size_t bytes) {
  return AsPool(pool)->Reallocate(block, bytes);
}

void rgpu_pool_numpy_free(void* pool, void* block, size_t) { AsPool(pool)->Free(block); }
