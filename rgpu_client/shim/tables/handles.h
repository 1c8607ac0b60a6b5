// Handles: the 64-bit ids that this process creates, and the objects that they name.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

namespace rgpu::shim {

// The most sessions that a process may have. Every handle holds the number of its session.
inline constexpr unsigned kMostSessions = 8;
inline constexpr unsigned kSessionShift = 48;         // above every pointer of the program
inline constexpr unsigned kContextSessionShift = 28;  // a context has 32 bits on the wire
constexpr unsigned SessionNumber(uint64_t handle) {
  return static_cast<unsigned>(handle >> kSessionShift) % kMostSessions;
}
constexpr unsigned SessionNumberOfContext(uint64_t handle) {
  return static_cast<unsigned>(handle >> kContextSessionShift) % kMostSessions;
}

enum class Kind : uint8_t {
  kContext = 1,
  kStream,
  kEvent,
  kModule,
  kLibrary,
  kFunction,  // also a kernel: see Function::is_kernel
  kPool,
  kLink,
  kMemory,
  kArray,
  kMipmappedArray,
};

// The object that a handle names. `id` is both the handle's value and the object's name on the
// wire.
struct Object {
  explicit Object(Kind kind_of) : kind(kind_of) {}
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  const Kind kind;
  uint64_t id = 0;
  uint32_t context = 0;
};

// Finds objects without a lock. Ids start above the special stream values and only grow. No id is
// used twice in a process, not even by a later session, so a stale handle is always recognised.
//
// A chunk holds the objects of one range of ids. Its place is the range's number modulo the number
// of places. An empty chunk is used again for a later range, so memory use follows the number of
// live objects. A reader with a stale handle may find a newer object in a reused chunk, and
// recognises that by the object's id.
class HandleTable {
 public:
  // session: the number that all ids of this table hold.
  explicit HandleTable(unsigned session = 0) : session_(session) {}
  ~HandleTable() = delete;  // threads may look handles up until the process ends

  // Takes ownership of the object and returns its new id. 0: no id is left.
  uint64_t Add(std::unique_ptr<Object> object);

  // A new id for something that has no object here.
  uint64_t NewId() {
    const std::lock_guard lock(mutex_);
    return next_[session_].fetch_add(1) | uint64_t{session_} << kSessionShift;
  }

  template <typename T>
  T* Find(uint64_t id) const {
    Object* object = Get(id);
    return object != nullptr && object->kind == T::kKind ? static_cast<T*>(object) : nullptr;
  }

  // Removes the handle. The object is freed some removals later, because in a program with a race
  // another thread may still use it.
  bool Remove(uint64_t id);

  // Calls `visit` for every live object.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const auto& place : places_) {
      const Chunk* chunk = place.load(std::memory_order_acquire);
      if (chunk == nullptr) continue;
      for (const auto& slot : chunk->slots) {
        if (Object* object = slot.load(std::memory_order_acquire)) visit(object);
      }
    }
  }

  // The most chunks that were in use at the same time.
  size_t chunks() const { return made_; }
  // For tests: skips ids, as if so many handles had been created and removed.
  static void Skip(uint64_t ids) { next_[0] += ids; }

 private:
  static constexpr uint64_t kChunkBits = 10;
  static constexpr uint64_t kChunkSize = 1U << kChunkBits;
  static constexpr uint64_t kPlaces = 1U << 16;
  static constexpr size_t kGraveyard = 512;
  struct Chunk {
    std::array<std::atomic<Object*>, kChunkSize> slots{};
    uint64_t number = 0;  // the ids of its objects / kChunkSize; mutex_
    uint64_t live = 0;    // mutex_
  };

  Object* Get(uint64_t id) const {
    const Chunk* chunk = places_[(id >> kChunkBits) % kPlaces].load(std::memory_order_acquire);
    if (chunk == nullptr) return nullptr;
    Object* object = chunk->slots[id % kChunkSize].load(std::memory_order_acquire);
    return object != nullptr && object->id == id ? object : nullptr;
  }
  Chunk* ChunkOf(uint64_t* id);
  Chunk* NewChunk();

  // The next ids, for the whole process, by the number of the session. Contexts have their own
  // counters, because a context has only 32 bits on the wire.
  using Counters = std::array<std::atomic<uint64_t>, kMostSessions>;
  static Counters next_;
  static Counters next_context_;
  const unsigned session_;
  std::mutex mutex_;
  std::array<std::atomic<Chunk*>, kPlaces> places_{};
  std::vector<Chunk*> empty_;  // never freed: a reader with a stale handle may still read one
  std::atomic<size_t> made_{0};
  std::deque<std::unique_ptr<Object>> graveyard_;
};

}  // namespace rgpu::shim
