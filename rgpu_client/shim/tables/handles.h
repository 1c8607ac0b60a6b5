// Handles: the 64-bit ids that this process mints, and the objects behind them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

namespace rgpu::shim {

enum class Kind : uint8_t {
  kContext = 1,
  kStream,
  kEvent,
  kModule,
  kLibrary,
  kFunction,  // also a kernel: see Function::is_kernel
  kPool,
  kLink,
};

// What a handle stands for.  `id` is both the handle's value and its name on the wire.
struct Object {
  explicit Object(Kind kind_of) : kind(kind_of) {}
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  const Kind kind;
  uint64_t id = 0;
  uint32_t context = 0;
};

// Finds objects without a lock: ids are dense, so a table of chunks is enough.  Ids start above the
// special stream values and are never used twice in a process, not even by a later session, so that
// a stale handle is always recognised.
class HandleTable {
 public:
  HandleTable() = default;
  ~HandleTable() = delete;  // lives as long as the process: threads may still look handles up

  // Takes the object over.  0: out of ids.
  uint64_t Add(std::unique_ptr<Object> object);

  template <typename T>
  T* Find(uint64_t id) const {
    Object* object = Get(id);
    return object != nullptr && object->kind == T::kKind ? static_cast<T*>(object) : nullptr;
  }

  // Forgets the handle.  The object is freed some removals later, because another thread of a
  // program with a race may still be looking at it.
  bool Remove(uint64_t id);

  // Calls `visit` for every live object.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (uint64_t id = first_.load(); id != 0 && id < next_.load(); ++id) {
      if (Object* object = Get(id)) visit(object);
    }
  }

 private:
  static constexpr uint64_t kChunkBits = 12;
  static constexpr uint64_t kChunkSize = 1U << kChunkBits;
  static constexpr uint64_t kChunks = 1U << 14;
  static constexpr size_t kGraveyard = 512;
  using Chunk = std::array<std::atomic<Object*>, kChunkSize>;

  Object* Get(uint64_t id) const {
    if ((id >> kChunkBits) >= kChunks) return nullptr;
    const Chunk* chunk = chunks_[id >> kChunkBits].load(std::memory_order_acquire);
    return chunk == nullptr ? nullptr
                            : (*chunk)[id & (kChunkSize - 1)].load(std::memory_order_acquire);
  }

  static std::atomic<uint64_t> next_;  // of the process
  std::atomic<uint64_t> first_{0};     // of this table
  std::mutex mutex_;
  std::array<std::atomic<Chunk*>, kChunks> chunks_{};
  std::deque<std::unique_ptr<Object>> graveyard_;
};

}  // namespace rgpu::shim
