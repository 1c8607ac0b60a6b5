// A kernel that is ready to run: the code loaded from the compiler's object file.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rgpu_emu/device/exec/module.h"
#include "rgpu_emu/device/kernel_abi.h"

namespace rgpu::emu {

// One mapping with the sections of a relocatable ELF64 file for this machine. Code is never
// writable.
class LoadedObject {
 public:
  // The bytes are untrusted: an invalid file gives CUDA_ERROR_INVALID_IMAGE and a sentence.
  static Outcome Load(std::span<const uint8_t> elf, std::unique_ptr<LoadedObject>* object);
  ~LoadedObject();
  LoadedObject(const LoadedObject&) = delete;
  LoadedObject& operator=(const LoadedObject&) = delete;

  // Returns the address of a global symbol whose section has at least `bytes` bytes from there on;
  // null if there is none.
  void* Symbol(const std::string& name, size_t bytes = 1) const;
  bool IsCode(const void* address) const;

 private:
  friend class ElfLoader;
  struct Defined {
    uint8_t* address;
    size_t room;
    bool code;
  };
  LoadedObject() = default;
  uint8_t* base_ = nullptr;
  size_t bytes_ = 0;
  size_t code_bytes_ = 0;  // the first part of the mapping
  std::unordered_map<std::string, Defined> symbols_;
};

class Kernel {
 public:
  using BlockFunction = void (*)(BlockInfo*);
  using ThreadFunction = void* (*)(BlockInfo*, uint32_t tid, void* frame);

  // `function_count`: LoadedModule::functions.size().
  static Outcome Make(const wire::compiler::Lowered& code, size_t function_count,
                      std::shared_ptr<const Kernel>* kernel);

  KernelKind kind() const { return kind_; }
  bool bar_only() const { return (flags_ & kKernelFlagBarOnly) != 0; }
  uint32_t local_bytes() const { return local_bytes_; }
  uint32_t static_shared_bytes() const { return static_shared_bytes_; }
  uint64_t frame_bytes() const { return frame_bytes_; }
  BlockFunction block_function() const { return block_; }
  ThreadFunction thread_function() const { return thread_; }
  const std::vector<uint64_t>& functions() const {
    return functions_;
  }  // host addresses, 0: not in this object

 private:
  Kernel() = default;
  std::unique_ptr<LoadedObject> object_;
  KernelKind kind_ = kKernelLoop;
  uint32_t flags_ = 0;
  uint32_t local_bytes_ = 0;
  uint32_t static_shared_bytes_ = 0;
  uint64_t frame_bytes_ = 0;
  BlockFunction block_ = nullptr;
  ThreadFunction thread_ = nullptr;
  std::vector<uint64_t> functions_;
};

}  // namespace rgpu::emu
