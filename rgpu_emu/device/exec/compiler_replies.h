// Decodes the compiler's replies. The compiler handles hostile PTX, so its replies are treated as
// hostile too.
#pragma once

#include <span>

#include "rgpu_common/native/wire/codec.h"
#include "rgpu_emu/device/exec/module.h"

namespace rgpu::emu {

enum CompilerMessage : uint32_t { kCompilerLoad = 1, kCompilerLower = 3, kCompilerLink = 5 };

Outcome DecodeLoaded(std::span<const uint8_t> body, LoadedModule* module);
Outcome DecodeLowered(std::span<const uint8_t> body, KernelCode* code);
Outcome DecodeLinked(std::span<const uint8_t> body, std::string* log);

}  // namespace rgpu::emu
