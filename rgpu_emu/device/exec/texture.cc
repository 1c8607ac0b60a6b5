#include "rgpu_emu/device/exec/texture.h"

#include <atomic>
#include <mutex>
#include <vector>

namespace rgpu::emu {
namespace {

// An object is kTag | generation of its slot | number of the slot. The generation of a slot counts
// the objects that it has had; a slot whose generations are used up is not used again.
constexpr uint64_t kTag = uint64_t{0x7} << 60;
constexpr unsigned kIndexBits = 20;
constexpr uint64_t kGenerations = uint64_t{1} << 40;
constexpr uint32_t kChunkSlots = 1024;
constexpr uint32_t kChunks = kMaxTextures / kChunkSlots;
static_assert(kMaxTextures == 1U << kIndexBits);

struct Slot {
  std::atomic<const TextureState*> state{nullptr};
  uint64_t generation = 0;  // under the lock
};

struct Chunk {
  Slot slots[kChunkSlots];
};

class TextureTable {
 public:
  uint64_t Publish(std::unique_ptr<TextureState> state) {
    const std::lock_guard lock(mutex_);
    uint32_t index = used_;
    if (!free_.empty()) {
      index = free_.back();
      free_.pop_back();
    } else if (used_ == kMaxTextures) {
      return 0;
    } else {
      AddSlot();
    }
    Slot& slot = *At(index);
    state->object = kTag | ++slot.generation << kIndexBits | index;
    const uint64_t object = state->object;
    slot.state.store(state.release(), std::memory_order_release);
    return object;
  }

  std::unique_ptr<TextureState> Withdraw(uint64_t object) {
    const std::lock_guard lock(mutex_);
    if (Find(object) == nullptr) return nullptr;
    const auto index = static_cast<uint32_t>(object % kMaxTextures);
    Slot& slot = *At(index);
    // The table made the state's memory and nobody else has it: it may be changed again.
    std::unique_ptr<TextureState> state(
        const_cast<TextureState*>(slot.state.exchange(nullptr, std::memory_order_acq_rel)));
    if (slot.generation + 1 < kGenerations) free_.push_back(index);
    return state;
  }

  const TextureState* Find(uint64_t object) const {
    const Slot* slot = At(static_cast<uint32_t>(object % kMaxTextures));
    if (slot == nullptr) return nullptr;
    const TextureState* state = slot->state.load(std::memory_order_acquire);
    return state != nullptr && state->object == object ? state : nullptr;
  }

 private:
  Slot* At(uint32_t index) const {
    Chunk* chunk = chunks_[index / kChunkSlots].load(std::memory_order_acquire);
    return chunk == nullptr ? nullptr : &chunk->slots[index % kChunkSlots];
  }
  void AddSlot() {
    if (used_ % kChunkSlots == 0)
      chunks_[used_ / kChunkSlots].store(new Chunk, std::memory_order_release);
    ++used_;
  }

  std::mutex mutex_;
  std::vector<uint32_t> free_;
  uint32_t used_ = 0;
  std::atomic<Chunk*> chunks_[kChunks] = {};
};

// Kernels may run until the process ends, so the table is never destroyed.
TextureTable& Table() {
  static auto* const table = new TextureTable;
  return *table;
}

}  // namespace

uint64_t PublishTexture(std::unique_ptr<TextureState> state) {
  return Table().Publish(std::move(state));
}

std::unique_ptr<TextureState> WithdrawTexture(uint64_t object) { return Table().Withdraw(object); }

const TextureState* FindTexture(uint64_t object) { return Table().Find(object); }

}  // namespace rgpu::emu
