// The device library: NVIDIA's driver or the emulated device, by the same names.
#pragma once

#include <string>

#include "gen/cuda_abi.gen.h"
#include "gen/driver_table.gen.h"

namespace rgpu::exec {

struct Driver {
  DriverTable table{};
  // Memory lies in the worker's own process, at an address that the worker chooses.
  bool emulated = false;
  // Of the emulated device: its memory as a file (the library's own descriptor) and where that is
  // mapped; null or -1: it has none to share.
  int (*heap)(uint64_t* base, uint64_t* bytes) = nullptr;

  // Of the emulated device: takes the sentence about this thread's last failed call about a kernel;
  // null: it has none.
  size_t (*reason)(char* text, size_t bytes) = nullptr;

  const DriverTable* operator->() const { return &table; }
};

// Loads the library at `path`.  False: `*sentence` says why and what to do.
bool LoadDriver(const std::string& path, Driver* driver, std::string* sentence);

// Errors after which nothing of the session can be used any more.
bool IsSticky(CUresult result);

}  // namespace rgpu::exec
