#include "rgpu_client/shim/tables/textures.h"

namespace rgpu::shim {

bool TextureTable::Add(uint64_t value, const TextureObject& object) {
  const std::lock_guard lock(mutex_);
  return value != 0 && objects_.emplace(value, object).second;
}

std::optional<TextureObject> TextureTable::Find(uint64_t value, bool surface) const {
  const std::lock_guard lock(mutex_);
  const auto it = objects_.find(value);
  if (it == objects_.end() || it->second.surface != surface) return std::nullopt;
  return it->second;
}

std::optional<TextureObject> TextureTable::Take(uint64_t value, bool surface) {
  const std::lock_guard lock(mutex_);
  const auto it = objects_.find(value);
  if (it == objects_.end() || it->second.surface != surface) return std::nullopt;
  const TextureObject object = it->second;
  objects_.erase(it);
  return object;
}

void TextureTable::DropContext(uint32_t context) {
  const std::lock_guard lock(mutex_);
  std::erase_if(objects_, [&](const auto& entry) { return entry.second.context == context; });
}

}  // namespace rgpu::shim
