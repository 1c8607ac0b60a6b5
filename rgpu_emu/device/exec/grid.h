// Runs grids: blocks on a pool of threads, and the threads of a block as coroutines.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "rgpu_emu/device/exec/kernel.h"

namespace rgpu::emu {

// Provides arena memory for the shared and local windows of block runners; the device implements
// it. Called by any thread, outside kernels.
class WindowProvider {
 public:
  virtual ~WindowProvider() = default;
  // Returns readable and writable, page-aligned memory with an inaccessible page before and after
  // it; 0: there is none.
  virtual uint64_t ReserveWindow(uint64_t bytes) = 0;
  virtual void ReleaseWindow(uint64_t address, uint64_t bytes) = 0;
};

// What kernels may ask of the device. Called by any thread *inside* a kernel. A fault in these
// functions would be rgpu's bug, so they must not use addresses that the kernel passed.
class DeviceServices {
 public:
  virtual ~DeviceServices() = default;
  virtual uint64_t DeviceMalloc(uint64_t bytes) = 0;  // 0: there is no memory
  virtual void DeviceFree(uint64_t address) = 0;      // an unknown address is ignored
  // Gets the output of printf in kernels, as whole records, when a grid has ended or FlushPrintf is
  // called. Of the runner's locks only the printf lock is held.
  virtual void Print(std::string_view text) = 0;
  // The same for the lines of asserts that have failed.
  virtual void PrintAsserts(std::string_view text) = 0;
};

// Stack size of every thread that runs kernels: several times the most that a kernel's thread
// needs, which is 512 KiB of local memory in frames of recursive functions.
inline constexpr size_t kKernelStackBytes = 2U << 20;

struct RunnerOptions {
  uint64_t band_base = 0;
  uint64_t band_bytes = 0;
  unsigned threads = 0;             // 0: number of CPUs
  uint32_t sm_count = 0;            // MULTIPROCESSOR_COUNT; 0: the number of threads
  double timeout_seconds = 60;      // 0: none
  uint64_t hostile_seed = 0;        // not 0: random delays, and any order that CUDA allows
  uint64_t printf_bytes = 1 << 20;  // CU_LIMIT_PRINTF_FIFO_SIZE
  uint64_t memory_bytes = 0;  // for running blocks (runners.h); 0: depends on the number of threads
  WindowProvider* windows = nullptr;
  DeviceServices* services = nullptr;
};

// Reads RGPU_EMU_THREADS, RGPU_EMU_LAUNCH_TIMEOUT and RGPU_EMU_TIMING; the caller sets the rest.
RunnerOptions RunnerOptionsFromEnvironment();

// What is pointed to must not change until RunGrid returns. The caller has checked the geometry
// (block <= 1024 threads, no dimension 0).
struct Launch {
  const Kernel* kernel = nullptr;
  const char* name = "";
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t dynamic_shared = 0;
  bool cooperative = false;           // all blocks must run at the same time (gang.h)
  const uint64_t* globals = nullptr;  // device address of each module global, by ordinal
  const void* params = nullptr;
  uint32_t param_bytes = 0;
  const void* owner = nullptr;  // what Cancel and StopAll name: the context
  // Not CUDA_SUCCESS: the owner has failed and its grids must not begin. Null: the owner never
  // fails.
  const std::atomic<int>* failed = nullptr;
};

struct FaultInfo {
  CUresult result = CUDA_SUCCESS;
  uint64_t address = 0;  // of an illegal access; else 0
  uint32_t block[3] = {0, 0, 0};
  std::string message;  // a sentence; empty if another grid caused the error
};

class GridRunner {
 public:
  explicit GridRunner(const RunnerOptions& options);
  ~GridRunner();  // waits for running grids, so call Cancel first
  GridRunner(const GridRunner&) = delete;
  GridRunner& operator=(const GridRunner&) = delete;

  // Runs a grid and returns when it has ended. The calling thread (the stream's) runs blocks too,
  // so that grids of several streams always make progress together. Results: 0; the kernel's 700,
  // 702, 710, 715 or 719; 2 if there is no memory for windows or frames; or the result given to
  // Cancel.
  CUresult RunGrid(const Launch& launch, FaultInfo* fault);

  // Stops the grids of this owner (null: all grids, also later ones); they end with `result`.
  void Cancel(const void* owner, CUresult result);
  // Stops them after an error of a grid, and waits until they have ended, so that nothing of this
  // owner runs on the device any more. Called by threads whose own grid has ended.
  void StopAll(const void* owner, CUresult result);

  // Returns true if `blocks` such blocks can run at the same time. Local memory is ignored, because
  // the context is charged for local memory of more threads than run at once.
  bool Fits(const Kernel& kernel, uint64_t threads, uint64_t shared_bytes, uint64_t blocks) const;
  // Adds (takes away) local memory that a context is charged for (runners.h).
  void AddRoom(uint64_t bytes);
  void TakeRoom(uint64_t bytes);

  void FlushPrintf();
  void SetPrintfBytes(uint64_t bytes);
  unsigned threads() const;  // at least so many blocks of a grid run at the same time

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rgpu::emu
