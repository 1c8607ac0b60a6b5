#include "rgpu_common/native/graph/user_object.h"

#include <mutex>
#include <utility>

namespace rgpu::graph {
namespace {

struct Dead {
  std::mutex mutex;
  std::vector<std::shared_ptr<UserObject>> objects;
};

// Never destroyed: references may go while the process ends.
Dead& TheDead() {
  static auto* dead = new Dead;
  return *dead;
}

}  // namespace

bool UserObject::Retain(uint32_t count) {
  uint64_t before = count_.load();
  do {
    if (before == 0) return false;
  } while (!count_.compare_exchange_weak(before, before + count));
  return true;
}

bool UserObject::Release(const std::shared_ptr<UserObject>& object, uint32_t count) {
  uint64_t before = object->count_.load();
  do {
    if (before < count) return false;
  } while (!object->count_.compare_exchange_weak(before, before - count));
  if (before == count) {
    Dead& dead = TheDead();
    const std::lock_guard lock(dead.mutex);
    dead.objects.push_back(object);
  }
  return true;
}

UserReferences::~UserReferences() {
  for (const auto& [object, count] : counts_) UserObject::Release(object, count);
}

void UserReferences::Take(const std::shared_ptr<UserObject>& object, uint32_t count) {
  counts_[object] += count;
}

bool UserReferences::Drop(const std::shared_ptr<UserObject>& object, uint32_t count) {
  const auto it = counts_.find(object);
  if (it == counts_.end() || it->second < count) return false;
  it->second -= count;
  if (it->second == 0) counts_.erase(it);
  return UserObject::Release(object, count);
}

void UserReferences::Share(const UserReferences& other) {
  for (const auto& [object, count] : other.counts_) {
    object->Retain(count);
    counts_[object] += count;
  }
}

std::vector<std::shared_ptr<UserObject>> TakeDead() {
  Dead& dead = TheDead();
  const std::lock_guard lock(dead.mutex);
  return std::exchange(dead.objects, {});
}

}  // namespace rgpu::graph
