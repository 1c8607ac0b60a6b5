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

// The compiler's information about an image, and the kernels lowered so far. A library and its
// modules share one object.
class ModuleCode {
 public:
  // Parses and checks the image; lowers nothing yet.
  static Outcome Load(const ImageText& text, std::shared_ptr<ModuleCode>* code);

  const LoadedModule& info() const { return loaded_; }
  // Return the index, or -1 if there is none. Of linked inputs each of which has a variable of its
  // own with that name, the first one's is found, unless another input has a .visible one.
  int FindEntry(std::string_view name) const;
  int FindGlobal(std::string_view name) const;

  // Returns an error if this kernel uses something that the device lacks, and notes it for
  // `rgpu_emu_reason`.
  CUresult Refused(size_t entry) const;
  // Returns the compiled kernel. The first call for an entry compiles it while the caller waits.
  Outcome Lower(size_t entry, std::shared_ptr<const Kernel>* kernel);
  bool Lowered(size_t entry) { return Known(entry) != nullptr; }

 private:
  // Returns null if the kernel is not lowered yet.
  std::shared_ptr<const Kernel> Known(size_t entry);

  LoadedModule loaded_;
  std::mutex lowering_;  // held while the compiler works
  std::mutex mutex_;     // never held while the compiler works
  std::vector<std::shared_ptr<const Kernel>> kernels_;
};

// Attributes that a program can set. A library's kernel shares them with its functions.
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

  // The state for the oldest launch calls (cuFuncSetBlockShape and the like).
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

  // Allocates the globals and writes their initial values.
  Outcome PlaceGlobals();
  std::shared_ptr<Function> FunctionOf(size_t entry, std::shared_ptr<FunctionState> state);
  // Removes the functions and globals; the memory is freed when pending work is done.
  void Unload();

  const uint64_t handle;
  const uint64_t library;  // handle of the owning library; 0: loaded by itself
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

  // Returns the library's module in this context; loads it at the first use.
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

// Finds a CUfunction. A CUkernel is accepted too: it gives its function in the current context.
CUresult FindFunction(CUfunction handle, std::shared_ptr<Function>* function);
// The same in a given context (null: the current one).
CUresult FindFunctionIn(std::shared_ptr<Context> context, CUfunction handle,
                        std::shared_ptr<Function>* function);

// Creates a module and adds it to the device's table.
Outcome MakeModule(const std::shared_ptr<Context>& context, std::shared_ptr<ModuleCode> code,
                   uint64_t library, std::shared_ptr<Module>* module);

}  // namespace rgpu::emu
