// Runs grids: blocks over a pool of threads, threads of a block as coroutines.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "rgpu_emu/device/exec/kernel.h"

namespace rgpu::emu {

// Arena memory for the shared windows and local depots of the runner's threads (the device
// implements it). Called from any thread, outside kernels.
class WindowProvider {
 public:
  virtual ~WindowProvider() = default;
  // Readable and writable, page-aligned, with an inaccessible page before and behind; 0: no memory.
  virtual uint64_t ReserveWindow(uint64_t bytes) = 0;
  virtual void ReleaseWindow(uint64_t address, uint64_t bytes) = 0;
};

// What kernels may ask of the device.  Called from any thread *inside* a kernel.  A fault in here
// is a bug, not the kernel's: the implementation touches no address that the kernel gave.
class DeviceServices {
 public:
  virtual ~DeviceServices() = default;
  virtual uint64_t DeviceMalloc(uint64_t bytes) = 0;  // 0: none
  virtual void DeviceFree(uint64_t address) = 0;      // an address that was never given is ignored
  // printf output of kernels, whole records, when a grid has ended or FlushPrintf is called; no
  // lock of the runner but the printf lock is held.
  virtual void Print(std::string_view text) = 0;
};

// Of every thread that runs kernels.  What a thread of a kernel needs at most, 512 KiB of local
// memory in frames of recursive functions, fits several times.
inline constexpr size_t kKernelStackBytes = 2U << 20;

struct RunnerOptions {
  uint64_t band_base = 0;
  uint64_t band_bytes = 0;
  unsigned threads = 0;             // 0: number of CPUs
  uint32_t sm_count = 0;            // MULTIPROCESSOR_COUNT; 0: threads
  double timeout_seconds = 60;      // 0: none
  uint64_t hostile_seed = 0;        // not 0: random delays and orders that CUDA allows
  uint64_t printf_bytes = 1 << 20;  // CU_LIMIT_PRINTF_FIFO_SIZE
  uint64_t memory_bytes = 0;        // for blocks that run (runners.h); 0: by the number of threads
  WindowProvider* windows = nullptr;
  DeviceServices* services = nullptr;
};

// RGPU_EMU_THREADS, RGPU_EMU_LAUNCH_TIMEOUT, RGPU_EMU_TIMING; the rest is the caller's.
RunnerOptions RunnerOptionsFromEnvironment();

// Everything it points to stays as it is until RunGrid returns.  Geometry was checked by the caller
// (block <= 1024 threads, no dimension 0).
struct Launch {
  const Kernel* kernel = nullptr;
  const char* name = "";
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t dynamic_shared = 0;
  const uint64_t* globals = nullptr;  // device address of each module global, by ordinal
  const void* params = nullptr;
  uint32_t param_bytes = 0;
  const void* owner = nullptr;  // what Cancel names (the context)
  // Not CUDA_SUCCESS: the owner has failed and its grids no longer begin.  Null: it never fails.
  const std::atomic<int>* failed = nullptr;
};

struct FaultInfo {
  CUresult result = CUDA_SUCCESS;
  uint64_t address = 0;  // of an illegal access, else 0
  uint32_t block[3] = {0, 0, 0};
  std::string message;  // a sentence; empty where the error is another grid's
};

class GridRunner {
 public:
  explicit GridRunner(const RunnerOptions& options);
  ~GridRunner();  // waits for running grids: Cancel first
  GridRunner(const GridRunner&) = delete;
  GridRunner& operator=(const GridRunner&) = delete;

  // Blocks until the grid has ended; the calling thread (the stream's) runs blocks too, so that
  // grids of several streams always make progress side by side.  Results: 0; 700, 702, 710, 715,
  // 719 of the kernel; 2 when there is no memory for windows or frames; what Cancel was given.
  CUresult RunGrid(const Launch& launch, FaultInfo* fault);

  // Stops the grids with this owner (null: all, now and later); they end with `result`.
  void Cancel(const void* owner, CUresult result);
  // The same after an error of a grid, and waits until they have ended: then nothing of this owner
  // runs on the device.  Called by threads whose own grid has ended.
  void StopAll(const void* owner, CUresult result);

  // Whether `blocks` blocks of these can run at the same time.  Local memory is not looked at: the
  // context is charged for it, for more threads than run at once.
  bool Fits(const Kernel& kernel, uint64_t threads, uint64_t shared_bytes, uint64_t blocks) const;
  // Local memory that a context is charged for (Runners).
  void AddRoom(uint64_t bytes);
  void TakeRoom(uint64_t bytes);

  void FlushPrintf();
  void SetPrintfBytes(uint64_t bytes);
  unsigned threads() const;  // blocks that run at the same time, at least

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rgpu::emu
