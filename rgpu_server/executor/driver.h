// The device library: NVIDIA's driver or the emulated device, which export the same names.
#pragma once

#include <cstdint>
#include <string>

#include "gen/cuda_abi.gen.h"
#include "gen/driver_table.gen.h"

namespace rgpu::exec {

struct Driver {
  DriverTable table{};
  // The library is the emulated device. Its memory lies in the worker's own process, at an address
  // that the worker chooses.
  bool emulated = false;
  // Emulated device only: returns the descriptor (owned by the library) of the file that holds the
  // device's memory, and where it is mapped. Null or -1: there is no memory to share.
  int (*heap)(uint64_t* base, uint64_t* bytes) = nullptr;

  // Emulated device only: allocations at addresses that the worker's client chooses
  // (memory_credit.h). All are null with other libraries.
  struct Credit {
    // Takes an eighth of the device's addresses for good, at most `*bytes`, and says how many. 0:
    // there are not enough in a row.
    uint64_t (*window)(uint64_t* bytes) = nullptr;
    // Set memory aside, and give back what was not used. 0: there is not enough.
    int (*set_aside)(uint64_t bytes) = nullptr;
    void (*give_back)(uint64_t bytes) = nullptr;
    // Allocates at `address` in the current context, from what was set aside.
    CUresult (*back)(CUdeviceptr address, uint64_t bytes) = nullptr;
  } credit;

  // Emulated device only: takes the sentence that explains why this thread's last call about a
  // kernel failed. Null with other libraries.
  size_t (*reason)(char* text, size_t bytes) = nullptr;
  // Emulated device only: copies the sentence about the first kernel that failed: its name, block,
  // thread and address. Null with other libraries.
  size_t (*fault)(char* text, size_t bytes) = nullptr;

  // Emulated device only: sets where the library's log goes, which is stderr at first. Null with
  // other libraries.
  void (*log_to)(int fd) = nullptr;

  // Emulated device only: the block that .reqntid demands of every launch of a function or kernel;
  // zeros: none. Null with other libraries, whose API does not tell.
  void (*required_block)(CUfunction function, uint32_t* block) = nullptr;

  const DriverTable* operator->() const { return &table; }
};

// Loads the library at `path`. On failure `*sentence` says why and what to do.
bool LoadDriver(const std::string& path, Driver* driver, std::string* sentence);

// Returns true for errors after which nothing of the session can be used any more.
bool IsSticky(CUresult result);

}  // namespace rgpu::exec
