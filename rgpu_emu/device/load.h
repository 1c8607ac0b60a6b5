// Loading with logs: what cuModuleLoad*, cuLibraryLoad* and cuLink* have in common.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rgpu_emu/device/jit_options.h"
#include "rgpu_emu/device/module.h"

namespace rgpu::emu {

// Compiles an image; failures go to the error log, and (once per sentence) to stderr when the
// program asked for no log.
CUresult LoadCode(const void* image, JitOptions* options, std::shared_ptr<ModuleCode>* code);

// Writes the outcome where the program reads it.
CUresult Report(const Outcome& outcome, JitOptions* options);

// The bytes of a file; false: cannot be read.
bool ReadFile(const char* path, std::vector<uint8_t>* bytes);

}  // namespace rgpu::emu
