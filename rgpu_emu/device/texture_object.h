// Texture and surface objects: what a program asked for, and the state that kernels read
// (exec/texture.h).
#pragma once

#include <memory>

#include "gen/cuda_abi.gen.h"
#include "rgpu_emu/device/context.h"
#include "rgpu_emu/device/exec/texture.h"

namespace rgpu::emu {

struct TextureObject {
  CUDA_RESOURCE_DESC resource{};
  CUDA_TEXTURE_DESC texture{};
  CUDA_RESOURCE_VIEW_DESC view{};
  bool has_view = false;
  uint64_t context = 0;  // handle of the owning context
};

// The state of a texture; `view` may be null. CUDA_ERROR_INVALID_VALUE: the descriptions contradict
// each other, or name something that does not exist.
CUresult TextureStateOf(const CUDA_RESOURCE_DESC& resource, const CUDA_TEXTURE_DESC& texture,
                        const CUDA_RESOURCE_VIEW_DESC* view, TextureState* state);
CUresult SurfaceStateOf(const CUDA_RESOURCE_DESC& resource, TextureState* state);

// Takes the object from the kernels when the work issued before and `after` is done, and frees its
// state when no kernel can use it any more.
void RetireTexture(uint64_t object, Fences after = {});
// Frees states that no kernel uses any more.
void ReapTextures();
// The textures and surfaces of a context that ends, when `after` is done too.
void DropTextures(const Context& context, const Fences& after);

}  // namespace rgpu::emu
