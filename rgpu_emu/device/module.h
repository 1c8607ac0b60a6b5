// Modules, libraries, kernels and functions.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "rgpu_emu/device/arena.h"
#include "rgpu_emu/device/context.h"
#include "rgpu_emu/device/exec/kernel.h"
#include "rgpu_emu/device/exec/module.h"
#include "rgpu_emu/device/image.h"

namespace rgpu::emu {

// What the compiler said about an image, and the kernels lowered so far.  Shared by a library and
// its modules.
class ModuleCode {
 public:
  // Parses and checks; nothing is lowered yet.
  static Outcome Load(const ImageText& text, std::shared_ptr<ModuleCode>* code);

  const LoadedModule& info() const { return loaded_; }
  // -1: none.
  int FindEntry(std::string_view name) const;
  int FindGlobal(std::string_view name) const;

  // What this entry uses that the device lacks, if so; noted for `LastReason`.
  CUresult Refused(size_t entry) const;
  // Compiles on the first call for this entry; the caller waits.
  Outcome Lower(size_t entry, std::shared_ptr<const Kernel>* kernel);
  bool Lowered(size_t entry) { return Known(entry) != nullptr; }

 private:
  // Null: not lowered yet.
  std::shared_ptr<const Kernel> Known(size_t entry);

  LoadedModule loaded_;
  std::mutex lowering_;  // held while the compiler works
  std::mutex mutex_;     // never
  std::vector<std::shared_ptr<const Kernel>> kernels_;
};

// Attributes that a program can set; a library's kernel and its functions share them.
struct FunctionState {
  std::atomic<int> max_dynamic_shared{-1};  // -1: not set
  std::atomic<int> carveout{-1};
  std::atomic<int> non_portable_cluster{0};
};

class Module;

class Function {
 public:
  Function(uint64_t function_handle, std::shared_ptr<Module> module, size_t entry_index,
           std::shared_ptr<FunctionState> shared_state)
      : handle(function_handle),
        entry(entry_index),
        state(std::move(shared_state)),
        module_(std::move(module)) {}

  const uint64_t handle;
  const size_t entry;
  const std::shared_ptr<FunctionState> state;
  const std::shared_ptr<Module>& module() const { return module_; }
  const EntryInfo& info() const;
  const Context* context() const;

  // State of the oldest launch calls (cuFuncSetBlockShape and the like).
  struct Legacy {
    std::mutex mutex;
    std::array<uint32_t, 3> block{1, 1, 1};
    uint32_t shared = 0;
    std::vector<uint8_t> params;
  };
  Legacy legacy;

 private:
  const std::shared_ptr<Module> module_;
};

class Library;

class Module : public std::enable_shared_from_this<Module> {
 public:
  Module(uint64_t module_handle, std::shared_ptr<Context> context, std::shared_ptr<ModuleCode> code,
         uint64_t library)
      : handle(module_handle),
        library(library),
        context_(std::move(context)),
        code_(std::move(code)) {}

  // Places the globals and their initial values.
  Outcome PlaceGlobals();
  std::shared_ptr<Function> FunctionOf(size_t entry, std::shared_ptr<FunctionState> state);
  // Takes functions and globals away; memory goes when the pending work is done.
  void Unload();

  const uint64_t handle;
  const uint64_t library;  // handle, 0: loaded by itself
  const Context* context() const { return context_.get(); }
  const std::shared_ptr<Context>& owner() const { return context_; }
  const std::shared_ptr<ModuleCode>& code() const { return code_; }
  const std::vector<uint64_t>& globals() const { return addresses_; }

 private:
  bool FillGlobal(size_t ordinal) const;

  const std::shared_ptr<Context> context_;
  const std::shared_ptr<ModuleCode> code_;
  AllocationRef memory_;
  std::vector<uint64_t> addresses_;
  std::mutex mutex_;
  std::map<size_t, std::shared_ptr<Function>> functions_;
};

class LibraryKernel {
 public:
  LibraryKernel(uint64_t kernel_handle, std::weak_ptr<Library> library, size_t entry_index)
      : handle(kernel_handle), entry(entry_index), library_(std::move(library)) {}

  const uint64_t handle;
  const size_t entry;
  const std::shared_ptr<FunctionState> state = std::make_shared<FunctionState>();
  std::shared_ptr<Library> library() const { return library_.lock(); }

 private:
  const std::weak_ptr<Library> library_;
};

class Library : public std::enable_shared_from_this<Library> {
 public:
  Library(uint64_t library_handle, std::shared_ptr<ModuleCode> code)
      : handle(library_handle), code_(std::move(code)) {}

  // The library's module in this context, loaded on first use.
  Outcome ModuleIn(const std::shared_ptr<Context>& context, std::shared_ptr<Module>* module);
  std::shared_ptr<LibraryKernel> KernelOf(size_t entry);
  void Unload();

  const uint64_t handle;
  const std::shared_ptr<ModuleCode>& code() const { return code_; }

 private:
  const std::shared_ptr<ModuleCode> code_;
  std::mutex mutex_;
  std::map<const Context*, std::shared_ptr<Module>> modules_;
  std::map<size_t, std::shared_ptr<LibraryKernel>> kernels_;
};

// A CUfunction, or a CUkernel used as one: then its function in the current context.
CUresult FindFunction(CUfunction handle, std::shared_ptr<Function>* function);
// The same in a given context (null: the current one).
CUresult FindFunctionIn(std::shared_ptr<Context> context, CUfunction handle,
                        std::shared_ptr<Function>* function);

// Makes a module and puts it into the tables.
Outcome MakeModule(const std::shared_ptr<Context>& context, std::shared_ptr<ModuleCode> code,
                   uint64_t library, std::shared_ptr<Module>* module);

}  // namespace rgpu::emu
