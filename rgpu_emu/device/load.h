// Loading with logs: the common part of cuModuleLoad*, cuLibraryLoad* and cuLink*.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rgpu_emu/device/jit_options.h"
#include "rgpu_emu/device/module.h"

namespace rgpu::emu {

// Compiles an image. A failure is written to the error log, and once per sentence to stderr if the
// program asked for no log.
CUresult LoadCode(const void* image, JitOptions* options, std::shared_ptr<ModuleCode>* code);

// Writes the outcome to the program's log buffers and options.
CUresult Report(const Outcome& outcome, JitOptions* options);

// Reads a whole file. Returns false if the file cannot be read.
bool ReadFile(const char* path, std::vector<uint8_t>* bytes);

}  // namespace rgpu::emu
