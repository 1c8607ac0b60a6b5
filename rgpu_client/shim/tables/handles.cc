#include "rgpu_client/shim/tables/handles.h"

namespace rgpu::shim {

// The first ids. Below them lie 0, CU_STREAM_LEGACY (1), CU_STREAM_PER_THREAD (2) and small numbers
// that a program may pass by mistake.
constexpr uint64_t kContext = 0x1000;
constexpr uint64_t kOther = 1ULL << 32;
HandleTable::Counters HandleTable::next_context_{kContext, kContext, kContext, kContext,
                                                 kContext, kContext, kContext, kContext};
HandleTable::Counters HandleTable::next_{kOther, kOther, kOther, kOther,
                                         kOther, kOther, kOther, kOther};

uint64_t HandleTable::Add(std::unique_ptr<Object> object) {
  const std::lock_guard lock(mutex_);
  const bool is_context = object->kind == Kind::kContext;
  std::atomic<uint64_t>& next = (is_context ? next_context_ : next_)[session_];
  constexpr uint64_t kContexts = 1ULL << kContextSessionShift;
  const uint64_t tag = uint64_t{session_} << (is_context ? kContextSessionShift : kSessionShift);
  const uint64_t count = next.load();
  if (is_context && count > kContexts - kChunkSize * kPlaces) return 0;  // ChunkOf may skip so many
  uint64_t id = count | tag;
  Chunk* chunk = ChunkOf(&id);
  if (chunk == nullptr) return 0;
  object->id = id;
  ++chunk->live;
  chunk->slots[id % kChunkSize].store(object.release(), std::memory_order_release);
  next = (id ^ tag) + 1;
  return id;
}

// The chunk for a new id. If objects of an earlier range still occupy the place of the id's range,
// `*id` moves on to the next range. Null: all places are occupied.
HandleTable::Chunk* HandleTable::ChunkOf(uint64_t* id) {
  const uint64_t first = *id >> kChunkBits;
  for (uint64_t number = first; number < first + kPlaces; ++number) {
    auto& place = places_[number % kPlaces];
    Chunk* chunk = place.load();
    if (chunk != nullptr && chunk->number != number) continue;
    if (chunk == nullptr) {
      chunk = NewChunk();
      chunk->number = number;
      place.store(chunk, std::memory_order_release);
    }
    if (number != first) *id = number << kChunkBits;
    return chunk;
  }
  return nullptr;
}

HandleTable::Chunk* HandleTable::NewChunk() {
  if (empty_.empty()) {
    ++made_;
    return new Chunk;
  }
  Chunk* chunk = empty_.back();
  empty_.pop_back();
  return chunk;
}

bool HandleTable::Remove(uint64_t id) {
  const std::lock_guard lock(mutex_);
  Object* object = Get(id);
  if (object == nullptr) return false;
  auto& place = places_[(id >> kChunkBits) % kPlaces];
  Chunk* chunk = place.load();
  chunk->slots[id % kChunkSize].store(nullptr);
  if (--chunk->live == 0) {
    place.store(nullptr);
    empty_.push_back(chunk);
  }
  if (object->kind == Kind::kContext) return true;  // never freed: stacks of threads point to it
  graveyard_.emplace_back(object);
  if (graveyard_.size() > kGraveyard) graveyard_.pop_front();
  return true;
}

}  // namespace rgpu::shim
