// Halts: places at which a stream or a graph waits while a function of the worker runs.
//
// CUDA has host functions for that (cuLaunchHostFunc, host nodes). NVIDIA's driver runs those of a
// context one after the other on one thread. While one of them runs, calls that put work behind it
// may wait inside the driver, with the executor's lock. The worker's functions wait for the client,
// and need that lock. So on NVIDIA's driver a halt consists of operations of the stream on two
// words in host memory, which keep nobody but the stream: write 1 to `reached`; wait until `go` is
// 1; write 0 to `go`. A thread of the worker looks at `reached`, has the function run, and sets
// `go`.
//
// The emulated device runs each host function on a thread of its own. There a halt is a host
// function.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "rgpu_server/executor/driver.h"

namespace rgpu::exec {

class Executor;

// Both words are 0 while no stream is at the halt.
struct HaltWords {
  uint32_t reached;
  uint32_t go;
};

// One halt with words. `function` may run as often as it is expected.
struct Halt {
  HaltWords* words = nullptr;
  CUdeviceptr address = 0;  // of the words
  CUhostFn function = nullptr;
  void* argument = nullptr;
};

// Watches halts and runs their functions, each on a thread of its own.
class HaltWatch {
 public:
  explicit HaltWatch(Executor& executor) : executor_(executor) {}

  // A stream will reach the halt once more. Callable with and without the executor's lock.
  void Expect(const std::shared_ptr<Halt>& halt);
  // It will not after all, because the driver refused the work.
  void Forget(const Halt& halt);

 private:
  void Watch();
  bool Look(std::vector<std::shared_ptr<Halt>>* reached);
  void Hand(const std::shared_ptr<Halt>& halt);
  void RunFunctions();

  Executor& executor_;
  std::mutex mutex_;
  bool started_ = false;
  std::condition_variable expected_changed_;
  std::vector<std::shared_ptr<Halt>> expected_;
  std::condition_variable handed_;
  std::vector<std::shared_ptr<Halt>> due_;  // a thread is to run their functions
  int idle_threads_ = 0;
};

// The halts of one context. All functions are called with the executor's lock held.
class Halts {
 public:
  Halts(const Driver& driver, std::shared_ptr<HaltWatch> watch);
  Halts(const Halts&) = delete;
  Halts& operator=(const Halts&) = delete;

  // The stream runs `function` and goes on when it has returned. The context is current.
  CUresult Launch(CUstream stream, CUhostFn function, void* argument);
  // Adds a node of a graph that does so. A halt with words is returned in `halt`: whoever launches
  // the graph tells the watch when to expect it. `context` is the graph's.
  CUresult AddNode(CUgraph graph, CUcontext context, CUhostFn function, void* argument,
                   CUgraphNode* node, std::shared_ptr<Halt>* halt);
  // The context is about to be destroyed, and no stream is at a halt.
  void Abandon();

 private:
  CUresult Take(std::shared_ptr<Halt>* halt);
  CUresult AddPage();
  void Recycle();

  const Driver& driver_;
  const std::shared_ptr<HaltWatch> watch_;
  const bool words_;  // false: host functions of the driver are used
  // The words that are free. Each halt keeps this, and may be destroyed without the lock.
  class Memory;
  const std::shared_ptr<Memory> memory_;
  std::vector<std::shared_ptr<Halt>> passing_;  // of streams: free again when `go` is 0
};

}  // namespace rgpu::exec
