// User objects: references that graphs and their executables keep to something of the program.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "gen/cuda_abi.gen.h"

namespace rgpu::graph {

// The destructor is due when the count is 0. It is the program's function, so it runs without any
// lock: `TakeDead` returns the objects whose last reference went.
class UserObject {
 public:
  UserObject(uint64_t object_handle, CUhostFn destroy, void* data, uint32_t references)
      : handle(object_handle), destroy_(destroy), data_(data), count_(references) {}

  const uint64_t handle;
  // False if the object is dead; then nothing changes.
  bool Retain(uint32_t count);
  bool Has(uint32_t count) const { return count_.load() >= count; }
  // False if the object has fewer references; then nothing changes.
  static bool Release(const std::shared_ptr<UserObject>& object, uint32_t count);
  bool dead() const { return count_.load() == 0; }
  // Calls the program's destructor.
  void Destroy() const { destroy_(data_); }

 private:
  const CUhostFn destroy_;
  void* const data_;
  std::atomic<uint64_t> count_;
};

// The references of one graph. Their destruction gives them back.
class UserReferences {
 public:
  UserReferences() = default;
  ~UserReferences();
  UserReferences(const UserReferences&) = delete;
  UserReferences& operator=(const UserReferences&) = delete;

  // Takes `count` references, which the caller owned.
  void Take(const std::shared_ptr<UserObject>& object, uint32_t count);
  // False if the graph has fewer of them.
  bool Drop(const std::shared_ptr<UserObject>& object, uint32_t count);
  // Retains every reference of `other` once more.
  void Share(const UserReferences& other);

 private:
  std::map<std::shared_ptr<UserObject>, uint32_t> counts_;
};

// Returns the objects whose last reference went since the last call, on any thread. The caller
// runs their destructors.
std::vector<std::shared_ptr<UserObject>> TakeDead();

}  // namespace rgpu::graph
