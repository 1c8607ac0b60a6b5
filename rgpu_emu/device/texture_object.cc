#include "rgpu_emu/device/texture_object.h"

#include <atomic>
#include <deque>
#include <mutex>

#include "rgpu_emu/device/device.h"

namespace rgpu::emu {
namespace {

// An object that the program has destroyed. Kernels that were issued before still find it. When
// they are done it is withdrawn, and its state goes when the kernels are done that may have found
// it meanwhile.
struct Leaving {
  uint64_t object = 0;
  std::unique_ptr<TextureState> state;  // null: not withdrawn yet
  Fences after;
};

struct Leavings {
  std::mutex mutex;
  std::deque<Leaving> all;
  std::atomic<size_t> count{0};  // of `all`
};

Leavings& TheLeavings() {
  static auto* const leavings = new Leavings;  // leaked: streams run until the process ends
  return *leavings;
}

// A kernel may name an object of another context.
Fences PendingEverywhere() {
  Fences all;
  TheDevice().contexts.ForEach([&](const auto& context) {
    for (Fence& fence : context->Pending()) all.push_back(std::move(fence));
  });
  return all;
}

// Takes one step. Returns true if the object is gone.
bool Advance(Leaving* leaving) {
  if (!AllDone(leaving->after)) return false;
  if (leaving->state != nullptr) return true;
  leaving->state = WithdrawTexture(leaving->object);
  // The fences are taken after the withdrawal: a kernel that begins later cannot find the object.
  leaving->after = PendingEverywhere();
  return leaving->state == nullptr || AllDone(leaving->after);
}

}  // namespace

void RetireTexture(uint64_t object, Fences after) {
  Leaving leaving;
  leaving.object = object;
  leaving.after = std::move(after);
  for (Fence& fence : PendingEverywhere()) leaving.after.push_back(std::move(fence));
  if (Advance(&leaving)) return;
  const std::lock_guard lock(TheLeavings().mutex);
  TheLeavings().all.push_back(std::move(leaving));
  TheLeavings().count = TheLeavings().all.size();
}

void ReapTextures() {
  Leavings& leavings = TheLeavings();
  if (leavings.count.load() == 0) return;
  const std::lock_guard lock(leavings.mutex);
  std::erase_if(leavings.all, [](Leaving& leaving) { return Advance(&leaving); });
  leavings.count = leavings.all.size();
}

void DropTextures(const Context& context, const Fences& after) {
  Device& device = TheDevice();
  for (auto* table : {&device.textures, &device.surfaces}) {
    table->ForEachKey([&](uint64_t object, const TextureObject& one) {
      if (one.context != context.handle || table->Remove(object) == nullptr) return;
      RetireTexture(object, after);
    });
  }
}

}  // namespace rgpu::emu
