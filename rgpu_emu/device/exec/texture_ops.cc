#include "rgpu_emu/device/exec/texture_ops.h"

namespace rgpu::emu {
namespace {

bool IsSurfaceOp(TextureOp op) { return op >= kSurfaceQuery; }

TextureFault Tell(TextureCall* call, uint32_t value) {
  call->data[0] = value;
  return TextureFault::kNone;
}

}  // namespace

TextureFault RunTexture(TextureCall* call) {
  const TextureState* object = FindTexture(call->object);
  if (call->op == kTextureIs) return Tell(call, object != nullptr && !object->surface ? 1 : 0);
  if (call->op == kSurfaceIs) return Tell(call, object != nullptr && object->surface ? 1 : 0);
  const bool surface = IsSurfaceOp(call->op);
  if (object == nullptr || object->surface != surface)
    return surface ? TextureFault::kNoSurface : TextureFault::kNoTexture;
  if (call->op == kTextureQuery || call->op == kSurfaceQuery) {
    const auto attribute = static_cast<TextureAttribute>(call->detail);
    return Tell(call, QueryTexture(*object, attribute, call->lod));
  }
  return surface ? RunSurface(*object, call) : ReadTexture(*object, call);
}

}  // namespace rgpu::emu
