// What the compiler process reports about a module, and the results of functions in this folder.
#pragma once

#include <cstdint>
#include <string>

#include "gen/compiler.gen.h"
#include "gen/cuda_abi.gen.h"

namespace rgpu::emu {

// A CUresult and, if it is not CUDA_SUCCESS, one sentence for the log.
struct Outcome {
  CUresult result = CUDA_SUCCESS;
  std::string message;
  bool ok() const { return result == CUDA_SUCCESS; }
};

using wire::compiler::EntryInfo;
using wire::compiler::GlobalInfo;
using wire::compiler::ParamInfo;

// What the compiler reports about a module. The decoder has checked: the parameters of an entry lie
// within param_bytes; of a global, initial.size() <= size, align is a power of two, and relocations
// lie inside and name existing ordinals.
struct LoadedModule : wire::compiler::Loaded {
  wire::compiler::Load source;  // kept, to load the module again into a restarted compiler
  uint64_t generation = 0;
};

// Why the device does not run a kernel. Other kernels of its module run.
inline Outcome RefusalOf(const EntryInfo& entry) {
  return {static_cast<CUresult>(entry.refusal), entry.why};
}

}  // namespace rgpu::emu
