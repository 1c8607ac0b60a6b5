// Decodes the compiler's replies. The compiler handles hostile PTX, so its replies are treated as
// hostile too.
#pragma once

#include <span>
#include <string>

#include "rgpu_emu/device/exec/module.h"

namespace rgpu::emu {

Outcome DecodeLoaded(std::span<const uint8_t> body, LoadedModule* module);
Outcome DecodeLowered(std::span<const uint8_t> body, wire::compiler::Lowered* code);
Outcome DecodeLinked(std::span<const uint8_t> body, wire::compiler::Linked* linked);

}  // namespace rgpu::emu
