// Handles: numbers that are looked up and never dereferenced. An unknown or stale handle is not
// found.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rgpu::emu {

enum class HandleKind : uint64_t {
  kContext = 1,
  kStream,
  kEvent,
  kModule,
  kLibrary,
  kKernel,
  kFunction,
  kPool,
  kLink,
  kMemory,
  kArray,
  kMipmappedArray
};

// Values are never reused in a process, and are never 0, 1 or 2 (special stream handles).
inline uint64_t NewHandle(HandleKind kind) {
  static std::atomic<uint64_t> next{1};
  return static_cast<uint64_t>(kind) << 40 | next.fetch_add(1, std::memory_order_relaxed) << 4;
}

template <class H>
uint64_t Raw(H handle) {
  return reinterpret_cast<uint64_t>(handle);
}

template <class H>
H As(uint64_t value) {
  return reinterpret_cast<H>(value);
}

template <class T>
class HandleTable {
 public:
  void Add(uint64_t handle, std::shared_ptr<T> object) {
    const std::unique_lock lock(mutex_);
    objects_[handle] = std::move(object);
  }
  std::shared_ptr<T> Find(uint64_t handle) const {
    const std::shared_lock lock(mutex_);
    const auto it = objects_.find(handle);
    return it == objects_.end() ? nullptr : it->second;
  }
  std::shared_ptr<T> Remove(uint64_t handle) {
    const std::unique_lock lock(mutex_);
    const auto it = objects_.find(handle);
    if (it == objects_.end()) return nullptr;
    std::shared_ptr<T> object = std::move(it->second);
    objects_.erase(it);
    return object;
  }
  // Calls `visit` on every object, outside the lock.
  template <class F>
  void ForEach(F visit) const {
    std::vector<std::shared_ptr<T>> all;
    {
      const std::shared_lock lock(mutex_);
      for (const auto& [handle, object] : objects_) all.push_back(object);
    }
    for (const auto& object : all) visit(object);
  }
  // The same with the handle: `visit(handle, object)`.
  template <class F>
  void ForEachKey(F visit) const {
    std::vector<std::pair<uint64_t, std::shared_ptr<T>>> all;
    {
      const std::shared_lock lock(mutex_);
      all.assign(objects_.begin(), objects_.end());
    }
    for (const auto& [handle, object] : all) visit(handle, *object);
  }
  // Removes and returns every object for which `leaves(object)` is true.
  template <class F>
  std::vector<std::shared_ptr<T>> RemoveIf(F leaves) {
    std::vector<std::shared_ptr<T>> out;
    const std::unique_lock lock(mutex_);
    for (auto it = objects_.begin(); it != objects_.end();) {
      if (leaves(*it->second)) {
        out.push_back(std::move(it->second));
        it = objects_.erase(it);
      } else {
        ++it;
      }
    }
    return out;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<T>> objects_;
};

}  // namespace rgpu::emu
