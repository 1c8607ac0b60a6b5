// What the compiler process reports about a module, and the results of functions in this folder.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "gen/cuda_abi.gen.h"

namespace rgpu::emu {

// A CUresult and, if it is not CUDA_SUCCESS, one sentence for the log.
struct Outcome {
  CUresult result = CUDA_SUCCESS;
  std::string message;
  bool ok() const { return result == CUDA_SUCCESS; }
};

struct ParamInfo {
  uint32_t offset;
  uint32_t bytes;
};

struct EntryInfo {
  std::string name;
  std::vector<ParamInfo> params;
  uint32_t param_bytes = 0;
  uint32_t static_shared_bytes = 0;
  uint32_t local_bytes = 0;
  uint32_t max_threads = 0;  // 0: 1024
  uint32_t ptx_version = 0;  // 80 = 8.0
  uint32_t target = 0;       // 80 = sm_80
  uint32_t registers = 0;
  uint32_t const_bytes = 0;
  // Not CUDA_SUCCESS: the kernel uses something that this device lacks, which the message names.
  // Other kernels of its module run.
  Outcome refusal;
};

enum class GlobalSpace : uint32_t { kGlobal = 1, kConst = 2 };
enum class GlobalRelocKind : uint32_t { kGlobalAddress = 1, kFunctionToken = 2 };

// At `offset` of the global's initial bytes goes the 8-byte address of global `ordinal` plus
// addend, or kFunctionToken | ordinal (kernel_abi.h).
struct GlobalReloc {
  uint64_t offset;
  GlobalRelocKind kind;
  uint32_t ordinal;
  int64_t addend;
};

// A module global; its ordinal is its index in LoadedModule::globals. The decoder has checked:
// initial.size() <= bytes, align is a power of two <= 65536, relocations lie inside and name
// existing ordinals.
struct GlobalInfo {
  std::string name;
  GlobalSpace space = GlobalSpace::kGlobal;
  uint64_t bytes = 0;
  uint32_t align = 1;
  bool visible = false;
  std::vector<uint8_t> initial;  // the rest is zero
  std::vector<GlobalReloc> relocations;
};

using ModuleKey = std::array<uint8_t, 32>;

struct LoadedModule {
  ModuleKey key{};
  std::string log;
  std::vector<EntryInfo> entries;
  std::vector<GlobalInfo> globals;
  std::vector<std::string> functions;  // device functions whose address is taken, by ordinal
  // Kept so that the module can be loaded again into a restarted compiler.
  std::vector<std::string> sources;
  uint64_t generation = 0;
};

// The reply to LOWER, as received; Kernel::Make turns it into code.
struct KernelCode {
  uint32_t kind = 0;   // KernelKind
  uint32_t flags = 0;  // KernelFlags
  uint32_t local_bytes = 0;
  uint32_t static_shared_bytes = 0;
  std::vector<uint8_t> object;
  std::vector<uint32_t> function_ordinals;
  std::string log;
};

}  // namespace rgpu::emu
