#include "rgpu_emu/device/exec/kernel.h"

#include <cstring>

namespace rgpu::emu {
namespace {

// The limits keep local windows and frames for 1024 threads allocatable.
constexpr uint32_t kMaxLocalBytes = 512 << 10;
constexpr uint32_t kMaxSharedBytes = 1 << 20;
constexpr uint64_t kMaxFrameBytes = 1 << 20;

Outcome Bad(const std::string& why) {
  return {CUDA_ERROR_INVALID_IMAGE, "the compiler answered with a kernel that cannot run: " + why};
}

}  // namespace

Outcome Kernel::Make(const wire::compiler::Lowered& code, size_t function_count,
                     std::shared_ptr<const Kernel>* kernel) {
  std::shared_ptr<Kernel> made(new Kernel());
  if (const Outcome loaded = LoadedObject::Load(code.object, &made->object_); !loaded.ok())
    return loaded;
  if (code.kind > kKernelCoroutine)
    return Bad("kind " + std::to_string(code.kind) + " is not known");
  if (code.local_bytes > kMaxLocalBytes)
    return Bad("it has more than 512 KiB of local memory per thread");
  if (code.static_shared_bytes > kMaxSharedBytes)
    return Bad("it has more than 1 MiB of shared memory");
  made->kind_ = static_cast<KernelKind>(code.kind);
  made->flags_ = code.flags;
  made->local_bytes_ = code.local_bytes;
  made->static_shared_bytes_ = code.static_shared_bytes;
  const LoadedObject& object = *made->object_;
  void* entry = object.Symbol(made->kind_ == kKernelLoop ? "rgpu_block" : "rgpu_thread");
  if (entry == nullptr || !object.IsCode(entry)) return Bad("it has no entry");
  made->block_ = reinterpret_cast<BlockFunction>(entry);
  made->thread_ = reinterpret_cast<ThreadFunction>(entry);
  if (made->kind_ == kKernelCoroutine) {
    const void* size = object.Symbol("rgpu_frame_bytes", sizeof(uint64_t));
    if (size == nullptr) return Bad("its frame size is missing");
    std::memcpy(&made->frame_bytes_, size, sizeof(uint64_t));
    if (made->frame_bytes_ == 0 || made->frame_bytes_ > kMaxFrameBytes) {
      return Bad("its frame size is " + std::to_string(made->frame_bytes_));
    }
  }
  made->functions_.assign(function_count, 0);
  for (const uint32_t ordinal : code.function_ordinals) {
    const void* address = object.Symbol("rgpu_fn_" + std::to_string(ordinal));
    if (ordinal >= function_count || address == nullptr || !object.IsCode(address)) {
      return Bad("device function " + std::to_string(ordinal) + " is missing");
    }
    made->functions_[ordinal] = reinterpret_cast<uint64_t>(address);
  }
  *kernel = std::move(made);
  return {};
}

}  // namespace rgpu::emu
