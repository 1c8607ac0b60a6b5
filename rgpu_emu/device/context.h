// Contexts: what a thread works in.  Owns streams, modules and memory, and keeps the sticky error.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "gen/cuda_abi.gen.h"
#include "rgpu_emu/device/stream.h"

namespace rgpu::emu {

class Context : public std::enable_shared_from_this<Context> {
 public:
  Context(uint64_t handle, bool primary, unsigned flags);
  // Second half of the constructor: needs shared_from_this.
  void Open();

  // The sticky error, or CUDA_SUCCESS.
  CUresult Status() const;
  // Keeps the first error, and stops what runs: from then on no command of the context begins.  All
  // errors but CUDA_ERROR_ASSERT end the whole device for this process, with every grid on it.
  // Status tells of the error when the grids have stopped.
  void Fail(CUresult result);
  // The error before Status tells of it.
  const std::atomic<int>& failed() const { return failed_; }

  // Keeps an error of asynchronous work that does not end the context; the next wait of the host
  // returns it, once.
  void Defer(CUresult result) { deferred_.store(result); }
  CUresult TakeDeferred() { return static_cast<CUresult>(deferred_.exchange(CUDA_SUCCESS)); }

  bool dying() const { return dying_.load(std::memory_order_acquire); }
  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }

  std::shared_ptr<Stream> NewStream(StreamKind kind, int priority);
  // Takes the stream out of snapshots once its last command is done.
  void Forget(const Stream* stream);
  const std::shared_ptr<Stream>& legacy() const { return legacy_; }
  // The calling thread's per-thread default stream.
  std::shared_ptr<Stream> PerThread();
  void DropPerThread(std::thread::id thread);

  // Local memory for every thread that can be resident, as on a GPU: `per_thread` bytes each, never
  // less than before (unless `exactly`).  False: not enough device memory.
  bool ReserveLocal(uint64_t per_thread, bool exactly = false);

  // Everything that is pending in all streams now.
  Fences Pending();
  // The same for blocking streams only; `order()` must be held.
  void PendingBlocking(Fences* out);
  // Commands of the legacy and of blocking streams are issued under this lock: their order is one
  // order.
  std::mutex& order() { return order_; }

  // Ends everything: waits a second for pending work, then cancels it, and frees what the context
  // owns.
  void Destroy();

  const uint64_t handle;
  const uint64_t id;
  const bool primary;
  std::atomic<unsigned> flags;
  std::atomic<int> cache_config{0};
  std::array<std::atomic<uint64_t>, 16> limits{};

 private:
  void Drain();

  std::atomic<int> failed_{CUDA_SUCCESS};
  std::atomic<int> sticky_{CUDA_SUCCESS};
  std::atomic<int> deferred_{CUDA_SUCCESS};
  std::atomic<bool> dying_{false};
  std::atomic<bool> cancelled_{false};
  std::mutex order_;
  std::mutex streams_mutex_;
  std::vector<std::shared_ptr<Stream>> streams_;
  std::map<std::thread::id, std::shared_ptr<Stream>> per_thread_;
  std::shared_ptr<Stream> legacy_;
  std::mutex local_mutex_;
  uint64_t local_charged_ = 0;
};

// The context that is current on this thread.  CUDA_ERROR_INVALID_CONTEXT without one,
// CUDA_ERROR_CONTEXT_IS_DESTROYED, or its sticky error.
CUresult CurrentContext(std::shared_ptr<Context>* context);
// The same without the sticky error.
CUresult AnyCurrentContext(std::shared_ptr<Context>* context);

// A stream operand (0, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD or a handle), and the status of its
// context.
CUresult FindStream(CUstream operand, std::shared_ptr<Stream>* stream);

// Waits and returns the context's status afterwards.
CUresult WaitIn(Context& context, const Fences& fences);

}  // namespace rgpu::emu
