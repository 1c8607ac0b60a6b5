#include "rgpu_client/shim/tables/handles.h"

namespace rgpu::shim {

// Below lie 0, CU_STREAM_LEGACY (1), CU_STREAM_PER_THREAD (2) and small numbers that a program may
// hold by mistake.
std::atomic<uint64_t> HandleTable::next_{0x1000};

uint64_t HandleTable::Add(std::unique_ptr<Object> object) {
  const std::lock_guard lock(mutex_);
  const uint64_t id = next_.load();
  if ((id >> kChunkBits) >= kChunks) return 0;
  auto& slot = chunks_[id >> kChunkBits];
  Chunk* chunk = slot.load();
  if (chunk == nullptr) {
    chunk = new Chunk{};
    slot.store(chunk, std::memory_order_release);
  }
  if (first_.load() == 0) first_ = id;
  object->id = id;
  (*chunk)[id & (kChunkSize - 1)].store(object.release(), std::memory_order_release);
  next_ = id + 1;
  return id;
}

bool HandleTable::Remove(uint64_t id) {
  const std::lock_guard lock(mutex_);
  Object* object = Get(id);
  if (object == nullptr) return false;
  (*chunks_[id >> kChunkBits].load())[id & (kChunkSize - 1)].store(nullptr);
  if (object->kind == Kind::kContext) return true;  // stays: stacks of other threads point to it
  graveyard_.emplace_back(object);
  if (graveyard_.size() > kGraveyard) graveyard_.pop_front();
  return true;
}

}  // namespace rgpu::shim
