// The one emulated device of a process. cuInit creates it. It is never destroyed, so that a process
// may end while kernels run.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "gen/emu_calls.gen.h"
#include "rgpu_emu/device/arena.h"
#include "rgpu_emu/device/array.h"
#include "rgpu_emu/device/context.h"
#include "rgpu_emu/device/event.h"
#include "rgpu_emu/device/exec/exec.h"
#include "rgpu_emu/device/handles.h"
#include "rgpu_emu/device/limbo.h"
#include "rgpu_emu/device/module.h"
#include "rgpu_emu/device/pool.h"
#include "rgpu_emu/device/services.h"
#include "rgpu_emu/device/settings.h"
#include "rgpu_emu/device/texture_object.h"
#include "rgpu_emu/device/value_watch.h"
#include "rgpu_emu/device/virtual_memory.h"

namespace rgpu::emu {

inline constexpr int kDriverVersion = 13000;
inline constexpr int kComputeMajor = 8;
inline constexpr int kComputeMinor = 0;
inline constexpr int kLeastPriority = 0;
inline constexpr int kGreatestPriority = -5;

// Reference-counted. After the last release the next retain creates a new Context object under the
// same handle.
struct PrimaryContext {
  std::mutex mutex;
  std::shared_ptr<Context> context;
  unsigned retained = 0;
  unsigned flags = 0;
  uint64_t handle = 0;
};

class LinkState;

struct Device {
  Settings settings;
  Arena arena;
  Limbo limbo{&arena};
  VirtualMemory maps{&arena};
  ValueWatch values;
  std::unique_ptr<Windows> windows;
  std::unique_ptr<Services> services;
  std::unique_ptr<CompilerClient> compiler;
  std::unique_ptr<GridRunner> runner;
  PrimaryContext primary;
  // The sticky error that ended the device for this process, or CUDA_SUCCESS.
  std::atomic<int> lost{CUDA_SUCCESS};

  HandleTable<Context> contexts;
  HandleTable<Stream> streams;
  HandleTable<Event> events;
  HandleTable<Module> modules;
  HandleTable<Library> libraries;
  HandleTable<LibraryKernel> kernels;
  HandleTable<Function> functions;
  HandleTable<Pool> pools;
  HandleTable<LinkState> links;
  HandleTable<Array> arrays;  // also levels and planes of arrays
  HandleTable<Array> mipmapped_arrays;
  HandleTable<TextureObject> textures;  // by the value that kernels have
  HandleTable<TextureObject> surfaces;
  std::shared_ptr<Pool> default_pool;
  std::mutex current_pool_mutex;
  std::shared_ptr<Pool> current_pool;
};

// Valid after cuInit.
Device& TheDevice();
bool Initialized();

}  // namespace rgpu::emu
