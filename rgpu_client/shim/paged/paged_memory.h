// Managed memory, and page-locked memory that is mapped to the device, where client and device have
// no common pages: both have their own, and this class keeps them equal (ADR 0019).
//
// The program's pages are protected. The first touch of a page whose bytes the device may have
// changed fetches them, and the first write marks the page. Before any command that may use the
// memory, what the program has written is sent, and the pages that the command may write are taken
// away. Fetches and sends are in no order with the program's streams, as if the program touched the
// device's memory itself.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "gen/cuda_abi.gen.h"
#include "rgpu_client/shim/paged/mirrors.h"
#include "rgpu_client/shim/paged/page_states.h"
#include "rgpu_client/shim/paged/two_views.h"
#include "rgpu_client/shim/paged/work_log.h"

namespace rgpu::shim {

class Session;
struct Context;
struct Here;

enum class TouchKind : uint8_t { kRead, kWrite, kUnknown };

class PagedMemory {
 public:
  explicit PagedMemory(Session& session) : session_(session), mirrors_(session) {}

  // Lets the program use the device's memory [base, base + bytes), whole pages, at the same
  // addresses, which this process has reserved. CUDA_ERROR_OUT_OF_MEMORY: it cannot be mapped.
  CUresult Add(const Here& here, uint64_t base, uint64_t bytes);
  // The memory is about to be freed. False: it is not tracked.
  bool Remove(uint64_t base);
  // Registered memory `host` has the image `device` from now on.
  CUresult AddMirror(const Here& here, uint64_t host, uint64_t device, uint64_t bytes);
  void RemoveMirror(uint64_t host);

  // Before a command in here.stream that may use any memory of the device.
  void BeforeWork(const Here& here);
  // Before a command in here.stream that uses only [address, address + bytes).
  void BeforeUse(const Here& here, uint64_t address, uint64_t bytes, bool written);
  // A stream will wait for a value at the device's `address`.
  void BeforeValueWait(const Here& here, uint64_t address, uint64_t bytes);
  // Before any driver call, while a stream may wait for a value: the program may have written it.
  void BeforeCall();
  // At the end of a driver call. `completed`: it reported that work is complete.
  void AfterCall(bool completed);
  // Around a host function of the program. After it, the device has what the function wrote.
  void BeforeHostFunction();
  void AfterHostFunction();

  // A thread of the program has touched a page without access. False: the memory is not tracked, or
  // its bytes cannot be had.
  bool Serve(uint64_t address, TouchKind kind);

 private:
  struct Tracked {
    uint64_t base = 0;
    uint64_t bytes = 0;
    uint32_t context = 0;
    PageStates states;
    std::unique_ptr<TwoViews> views;
    // What unsettled pages held before the program wrote to them.
    std::map<uint64_t, std::unique_ptr<std::array<uint8_t, kPageBytes>>> before;
  };

  Tracked* Find(uint64_t address);
  bool Answer(Tracked& tracked, uint64_t page, const Touch& touch, bool settled);
  Context* TrafficContext(Context* wanted);
  void Push(Tracked& tracked, Context& context);
  void PushRun(Tracked& tracked, Context& context, const PageRun& run);
  void TakeAway(Tracked& tracked, Context& context);
  void DropUnsettled();
  bool Fail(CUresult status, uint64_t address);

  Session& session_;
  std::mutex mutex_;  // taken before the locks of the channel
  std::map<uint64_t, Tracked> tracked_;
  WorkLog log_;
  uint32_t used_ = 0;  // the context whose page stream was used last
  Mirrors mirrors_;
  std::atomic<bool> awaited_{false};  // a stream may wait for a value in an image
};

}  // namespace rgpu::shim
