#include "rgpu_emu/device/device.h"

#include "rgpu_common/native/base/log.h"
#include "rgpu_emu/device/entry.h"
#include "rgpu_emu/device/function.h"
#include "rgpu_emu/device/hostile.h"

namespace rgpu::emu {
namespace {

std::atomic<Device*> the_device{nullptr};

CUresult Refuse(const std::string& why, CUresult result) {
  base::Log(base::Level::kError, "%s", why.c_str());
  return result;
}

CUresult MakeDevice(Device* device) {
  std::string why;
  if (!ReadSettings(&device->settings, &why)) return Refuse(why, CUDA_ERROR_INVALID_VALUE);
  if (!device->arena.Open(device->settings, &why)) return Refuse(why, CUDA_ERROR_OPERATING_SYSTEM);
  StartHostile(device->settings.hostile, device->settings.hostile_seed);
  InstallFaultHandlers();
  device->windows = std::make_unique<Windows>(device->arena);
  device->services = std::make_unique<Services>(&device->arena);
  device->compiler = std::make_unique<CompilerClient>(CompilerOptionsFromEnvironment());
  RunnerOptions options = RunnerOptionsFromEnvironment();
  if (options.threads == 0) options.threads = std::max(1U, std::thread::hardware_concurrency());
  options.sm_count = static_cast<uint32_t>(SmCountFor(options.threads));
  options.band_base = device->arena.base();
  options.band_bytes = device->arena.bytes();
  options.windows = device->windows.get();
  options.services = device->services.get();
  device->runner = std::make_unique<GridRunner>(options);
  device->primary.handle = NewHandle(HandleKind::kContext);
  const uint64_t pool = NewHandle(HandleKind::kPool);
  device->default_pool = std::make_shared<Pool>(pool, 0);
  device->current_pool = device->default_pool;
  device->pools.Add(pool, device->default_pool);
  WatchFork();
  return CUDA_SUCCESS;
}

}  // namespace

Device& TheDevice() { return *the_device.load(std::memory_order_acquire); }
bool Initialized() { return the_device.load(std::memory_order_acquire) != nullptr; }

CUresult cuInit(unsigned int) {
  static std::mutex once;
  if (Forked()) return CUDA_ERROR_NOT_INITIALIZED;
  const std::lock_guard lock(once);
  if (Initialized()) return CUDA_SUCCESS;
  auto device = std::make_unique<Device>();
  const CUresult made = MakeDevice(device.get());
  if (made == CUDA_SUCCESS) the_device.store(device.release(), std::memory_order_release);
  return made;
}

}  // namespace rgpu::emu
