#include "rgpu_emu/device/module.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "rgpu_common/native/base/log.h"
#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/hostile.h"
#include "rgpu_emu/device/kernel_abi.h"
#include "rgpu_emu/device/reason.h"

namespace rgpu::emu {
namespace {

constexpr uint64_t kGlobalAlign = 256;

template <class List>
int Find(const List& list, std::string_view name) {
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

Outcome ModuleCode::Load(const ImageText& text, std::shared_ptr<ModuleCode>* code) {
  const std::vector<std::string_view> views(text.ptx.begin(), text.ptx.end());
  auto made = std::make_shared<ModuleCode>();
  Outcome outcome = TheDevice().compiler->Load(views, &made->loaded_);
  if (!outcome.ok()) return outcome;
  for (EntryInfo& entry : made->loaded_.entries) {
    if (text.max_registers != 0) entry.registers = std::min(entry.registers, text.max_registers);
  }
  made->kernels_.resize(made->loaded_.entries.size());
  *code = std::move(made);
  return {};
}

int ModuleCode::FindEntry(std::string_view name) const { return Find(loaded_.entries, name); }

int ModuleCode::FindGlobal(std::string_view name) const {
  int found = -1;
  for (size_t i = 0; i < loaded_.globals.size(); ++i) {
    const GlobalInfo& global = loaded_.globals[i];
    if (global.name != name) continue;
    if (global.scope == wire::compiler::GlobalScope::kProgram) return static_cast<int>(i);
    if (found < 0 && global.scope == wire::compiler::GlobalScope::kModule) {
      found = static_cast<int>(i);
    }
  }
  return found;
}

CUresult ModuleCode::Refused(size_t entry) const {
  const Outcome refusal = RefusalOf(loaded_.entries[entry]);
  if (!refusal.ok()) NoteReason(refusal.message);
  return refusal.result;
}

Outcome ModuleCode::Lower(size_t entry, std::shared_ptr<const Kernel>* kernel) {
  if (Refused(entry) != CUDA_SUCCESS) return RefusalOf(loaded_.entries[entry]);
  *kernel = Known(entry);
  if (*kernel != nullptr) return {};
  // Only this lock is held while the compiler works, so that launches of compiled kernels do not
  // wait.
  const std::lock_guard one_at_a_time(lowering_);
  *kernel = Known(entry);
  if (*kernel != nullptr) return {};
  wire::compiler::Lowered code;
  Outcome outcome = TheDevice().compiler->Lower(&loaded_, loaded_.entries[entry].name, &code);
  if (outcome.ok()) outcome = Kernel::Make(code, loaded_.functions.size(), kernel);
  if (!outcome.ok()) {
    NoteReason("kernel " + loaded_.entries[entry].name + ": " + outcome.message);
    return outcome;
  }
  const std::lock_guard lock(mutex_);
  kernels_[entry] = *kernel;
  return {};
}

std::shared_ptr<const Kernel> ModuleCode::Known(size_t entry) {
  const std::lock_guard lock(mutex_);
  return kernels_[entry];
}

const EntryInfo& Function::info() const { return module_->code()->info().entries[entry]; }
const Context* Function::context() const { return module_->context(); }

Outcome Module::PlaceGlobals() {
  const auto& globals = code_->info().globals;
  if (globals.empty()) return {};
  uint64_t total = 0;
  std::vector<uint64_t> offsets;
  for (const GlobalInfo& global : globals) {
    const uint64_t align = std::max<uint64_t>(global.align, kGlobalAlign);
    if (global.size > TheDevice().arena.bytes())
      return {CUDA_ERROR_OUT_OF_MEMORY, "a module global is too large"};
    total = (total + align - 1) / align * align;
    offsets.push_back(total);
    total += std::max<uint64_t>(global.size, 1);
  }
  Arena& arena = TheDevice().arena;
  // Whole pages: the block then starts at a page, so that every alignment up to a page holds.
  total = (total + kPageBytes - 1) / kPageBytes * kPageBytes;
  memory_ = arena.Allocate(total, MemoryKind::kModule, context_->handle);
  if (memory_ == nullptr) {
    TrimPools(0);
    TheDevice().limbo.Reap();
    memory_ = arena.Allocate(total, MemoryKind::kModule, context_->handle);
  }
  if (memory_ == nullptr)
    return {CUDA_ERROR_OUT_OF_MEMORY, "no device memory for the module's globals"};
  for (const uint64_t offset : offsets) addresses_.push_back(memory_->base + offset);
  for (size_t i = 0; i < globals.size(); ++i) {
    if (!FillGlobal(i))
      return {CUDA_ERROR_INVALID_IMAGE, "a module global has a relocation past its end"};
  }
  return {};
}

bool Module::FillGlobal(size_t ordinal) const {
  using wire::compiler::RelocationKind;
  const GlobalInfo& global = code_->info().globals[ordinal];
  auto* at = reinterpret_cast<uint8_t*>(addresses_[ordinal]);
  if (!global.initial.empty()) std::memcpy(at, global.initial.data(), global.initial.size());
  for (const wire::compiler::Relocation& reloc : global.relocations) {
    if (global.size < 8 || reloc.offset > global.size - 8) return false;
    const bool address = RelocationKind{reloc.kind} == RelocationKind::kGlobalAddress;
    const uint64_t base = address ? addresses_[reloc.ordinal] : (kFunctionToken | reloc.ordinal);
    const uint64_t value = base + static_cast<uint64_t>(reloc.addend);
    std::memcpy(at + reloc.offset, &value, sizeof(value));
  }
  return true;
}

std::shared_ptr<Function> Module::FunctionOf(size_t entry, std::shared_ptr<FunctionState> state) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Function>& function = functions_[entry];
  if (function == nullptr) {
    if (state == nullptr) state = std::make_shared<FunctionState>();
    const uint64_t new_handle = NewHandle(HandleKind::kFunction);
    function = std::make_shared<Function>(new_handle, shared_from_this(), entry, std::move(state));
    TheDevice().functions.Add(new_handle, function);
  }
  return function;
}

void Module::Unload() {
  Device& device = TheDevice();
  std::map<size_t, std::shared_ptr<Function>> functions;
  {
    const std::lock_guard lock(mutex_);
    functions = std::move(functions_);
    functions_.clear();
  }
  for (const auto& [entry, function] : functions) device.functions.Remove(function->handle);
  Fences pending = context_->Pending();
  if (Hostile()) WaitAll(pending);
  if (memory_ != nullptr && device.arena.Hide(memory_))
    device.limbo.Retire(memory_, std::move(pending));
}

Outcome MakeModule(const std::shared_ptr<Context>& context, std::shared_ptr<ModuleCode> code,
                   uint64_t library, std::shared_ptr<Module>* module) {
  const uint64_t handle = NewHandle(HandleKind::kModule);
  auto made = std::make_shared<Module>(handle, context, std::move(code), library);
  Outcome outcome = made->PlaceGlobals();
  if (!outcome.ok()) {
    made->Unload();
    return outcome;
  }
  TheDevice().modules.Add(handle, made);
  *module = std::move(made);
  return {};
}

}  // namespace rgpu::emu
