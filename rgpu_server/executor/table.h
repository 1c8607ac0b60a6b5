// Objects by the ids that the client minted, one table per kind, so an id of another kind is not
// found.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "rgpu_server/executor/command.h"

namespace rgpu::exec {

inline constexpr size_t kMaxHandles = 1U << 20;  // per kind
inline constexpr uint64_t kFirstHandle = 3;      // 0 is null, 1 and 2 are the default streams

template <typename T>
class Table {
 public:
  explicit Table(size_t limit = kMaxHandles) : limit_(limit) {}

  // Whether `id` may be given to a new object: CUDA_ERROR_INVALID_HANDLE if it is reserved or in
  // use, CUDA_ERROR_OUT_OF_MEMORY if the session has too many.
  CUresult CanAdd(uint64_t id) const {
    if (id < kFirstHandle || objects_.contains(id)) return CUDA_ERROR_INVALID_HANDLE;
    return objects_.size() < limit_ ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  }
  void Add(uint64_t id, std::shared_ptr<T> object) { objects_[id] = std::move(object); }
  // The creation failed and its error is kept: commands that name it are nothing.
  void AddFailed(uint64_t id) { objects_[id] = nullptr; }

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
    return *object == nullptr ? kDropped : CUDA_SUCCESS;
  }
  template <typename Predicate>
  void EraseIf(Predicate predicate) {
    std::erase_if(objects_,
                  [&](const auto& entry) { return entry.second && predicate(*entry.second); });
  }
  template <typename Function>
  void ForEach(Function function) {
    for (auto& [id, object] : objects_) {
      if (object) function(object);
    }
  }
  size_t size() const { return objects_.size(); }

 private:
  size_t limit_;
  std::unordered_map<uint64_t, std::shared_ptr<T>> objects_;
};

}  // namespace rgpu::exec
