#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/module.h"

namespace rgpu::emu {

Outcome Library::ModuleIn(const std::shared_ptr<Context>& context,
                          std::shared_ptr<Module>* module) {
  const std::lock_guard lock(mutex_);
  const auto it = modules_.find(context.get());
  if (it != modules_.end() && it->second->owner() == context) {
    *module = it->second;
    return {};
  }
  // Drop modules of contexts that no longer exist.
  std::erase_if(modules_, [](const auto& entry) { return entry.second->owner()->dying(); });
  Outcome outcome = MakeModule(context, code_, handle, module);
  if (outcome.ok()) modules_[context.get()] = *module;
  return outcome;
}

std::shared_ptr<LibraryKernel> Library::KernelOf(size_t entry) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<LibraryKernel>& kernel = kernels_[entry];
  if (kernel == nullptr) {
    const uint64_t new_handle = NewHandle(HandleKind::kKernel);
    kernel = std::make_shared<LibraryKernel>(new_handle, weak_from_this(), entry);
    TheDevice().kernels.Add(new_handle, kernel);
  }
  return kernel;
}

void Library::Unload() {
  Device& device = TheDevice();
  std::map<const Context*, std::shared_ptr<Module>> modules;
  std::map<size_t, std::shared_ptr<LibraryKernel>> kernels;
  {
    const std::lock_guard lock(mutex_);
    modules = std::move(modules_);
    kernels = std::move(kernels_);
    modules_.clear();
    kernels_.clear();
  }
  for (const auto& [entry, kernel] : kernels) device.kernels.Remove(kernel->handle);
  for (const auto& [context, module] : modules) {
    if (device.modules.Remove(module->handle) != nullptr) module->Unload();
  }
}

}  // namespace rgpu::emu
