// Texture and surface objects: what the program said about them, so that it can ask again. Their
// values come from the server.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "gen/cuda_abi.gen.h"

namespace rgpu::shim {

struct TextureObject {
  uint32_t context = 0;
  bool surface = false;
  bool has_view = false;
  CUDA_RESOURCE_DESC resource{};
  CUDA_TEXTURE_DESC texture{};
  CUDA_RESOURCE_VIEW_DESC view{};
};

class TextureTable {
 public:
  // False: the value is in use, or 0.
  bool Add(uint64_t value, const TextureObject& object);
  std::optional<TextureObject> Find(uint64_t value, bool surface) const;
  // Removes the object and returns it.
  std::optional<TextureObject> Take(uint64_t value, bool surface);
  void DropContext(uint32_t context);

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, TextureObject> objects_;
};

}  // namespace rgpu::shim
