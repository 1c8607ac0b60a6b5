// Objects by the ids that the client created. Each kind has its own table, so an id of another kind
// is not found.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "rgpu_server/executor/command.h"
#include "rgpu_server/executor/salted_hash.h"

namespace rgpu::exec {

// The limit for all kinds together, allocations included, per session. A handle takes up to 1 KiB
// of the worker's host memory, which no lease is charged for.
inline constexpr size_t kMaxHandles = 256U << 10;
// How many handles exist. A worker process serves one session; guarded by the executor's lock.
inline size_t g_handles = 0;
inline constexpr uint64_t kFirstHandle = 3;  // 0 is null, 1 and 2 are the default streams

template <typename T>
class Table {
 public:
  using Objects = std::unordered_map<uint64_t, std::shared_ptr<T>, SaltedHash>;

  explicit Table(size_t limit = kMaxHandles) : limit_(limit) {}

  // Checks that `id` may be given to a new object. CUDA_ERROR_INVALID_HANDLE: it is reserved or in
  // use. CUDA_ERROR_OUT_OF_MEMORY: the session has too many handles.
  CUresult CanAdd(uint64_t id) const {
    if (id < kFirstHandle || objects_.contains(id) || reserved_.contains(id)) {
      return CUDA_ERROR_INVALID_HANDLE;
    }
    const bool room = objects_.size() + reserved_.size() < limit_ && g_handles < kMaxHandles;
    return room ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  }
  void Add(uint64_t id, std::shared_ptr<T> object) {
    const size_t before = objects_.size();
    objects_[id] = std::move(object);
    g_handles += objects_.size() - before;
  }
  // Keeps an id for an object that is created while the executor's lock is released, so that no
  // other thread creates an object with that id meanwhile. Commands do not find the id before Add.
  class Reservation {
   public:
    Reservation(Table& table, uint64_t id) : table_(table), id_(id), result_(table.CanAdd(id)) {
      held_ = result_ == CUDA_SUCCESS;
      if (!held_) return;
      table_.reserved_.insert(id_);
      ++g_handles;
    }
    ~Reservation() { Release(); }
    Reservation(const Reservation&) = delete;
    Reservation& operator=(const Reservation&) = delete;

    // As CanAdd.
    CUresult result() const { return result_; }
    void Add(std::shared_ptr<T> object) {
      Release();
      table_.Add(id_, std::move(object));
    }

   private:
    void Release() {
      if (!held_) return;
      held_ = false;
      table_.reserved_.erase(id_);
      --g_handles;
    }

    Table& table_;
    const uint64_t id_;
    const CUresult result_;
    bool held_ = false;
  };
  // Records that the creation of `id` failed (its error is kept elsewhere), so that commands naming
  // it are skipped. Returns false if there are too many handles; then nothing is recorded.
  bool AddFailed(uint64_t id) {
    if (!CanFail()) return false;
    Add(id, nullptr);
    return true;
  }
  static bool CanFail() { return g_handles < kMaxHandles + kMaxHandles / 4; }

  CUresult Find(uint64_t id, T** object) const {
    const auto it = objects_.find(id);
    if (it == objects_.end()) return CUDA_ERROR_INVALID_HANDLE;
    *object = it->second.get();
    return *object == nullptr ? kDropped : CUDA_SUCCESS;
  }
  CUresult Share(uint64_t id, std::shared_ptr<T>* object) const {
    const auto it = objects_.find(id);
    if (it == objects_.end()) return CUDA_ERROR_INVALID_HANDLE;
    *object = it->second;
    return *object == nullptr ? kDropped : CUDA_SUCCESS;
  }
  CUresult Take(uint64_t id, std::shared_ptr<T>* object) {
    const auto it = objects_.find(id);
    if (it == objects_.end()) return CUDA_ERROR_INVALID_HANDLE;
    *object = std::move(it->second);
    objects_.erase(it);
    --g_handles;
    return *object == nullptr ? kDropped : CUDA_SUCCESS;
  }
  template <typename Predicate>
  void EraseIf(Predicate predicate) {
    g_handles -= std::erase_if(
        objects_, [&](const auto& entry) { return entry.second && predicate(*entry.second); });
  }
  template <typename Function>
  void ForEach(Function function) {
    for (auto& [id, object] : objects_) {
      if (object) function(object);
    }
  }
  template <typename Function>
  void ForEach(Function function) const {
    for (const auto& [id, object] : objects_) {
      if (object) function(object);
    }
  }
  size_t size() const { return objects_.size(); }

 private:
  size_t limit_;
  Objects objects_;
  std::unordered_set<uint64_t, SaltedHash> reserved_;
};

}  // namespace rgpu::exec
