// Contexts. A context owns streams, modules and memory, and keeps the sticky error.
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
  // Second part of the constructor; it needs shared_from_this.
  void Open();

  // The sticky error, or CUDA_SUCCESS.
  CUresult Status() const;
  // Keeps the first error and stops what runs, so that no later command of the context begins.
  // Every error except CUDA_ERROR_ASSERT ends the whole device for this process, with every grid on
  // it. Status returns the error only when the grids have stopped.
  void Fail(CUresult result);
  // The error, already before Status returns it.
  const std::atomic<int>& failed() const { return failed_; }

  // Keeps an error of asynchronous work that does not end the context. The host's next wait returns
  // it once.
  void Defer(CUresult result) { deferred_.store(static_cast<int>(result)); }
  CUresult TakeDeferred() { return static_cast<CUresult>(deferred_.exchange(CUDA_SUCCESS)); }

  bool dying() const { return dying_.load(std::memory_order_acquire); }
  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }

  std::shared_ptr<Stream> NewStream(StreamKind kind, int priority);
  // Removes the stream from the list when its last command is done.
  void Forget(const Stream* stream);
  const std::shared_ptr<Stream>& legacy() const { return legacy_; }
  // The calling thread's per-thread default stream.
  std::shared_ptr<Stream> PerThread();
  void DropPerThread(std::thread::id thread);

  // Reserves `per_thread` bytes of local memory for every thread that can be resident, as a GPU
  // does. The reservation never shrinks, unless `exactly` is set. Returns false if not enough
  // device memory is left.
  bool ReserveLocal(uint64_t per_thread, bool exactly = false);

  // Returns fences for all work that is pending in any stream now.
  Fences Pending();
  // The same for blocking streams only; `order()` must be held.
  void PendingBlocking(Fences* out);
  // Later commands of all streams wait for these places.
  void HoldBehind(const Fences& places);
  // Adds the places for which new commands wait.
  void GatherHeld(Fences* after);
  // Held while a command is issued to the legacy stream or a blocking stream, so that those
  // commands have one total order.
  std::mutex& order() { return order_; }

  // Ends the context: waits one second for pending work, cancels the rest, and frees what the
  // context owns.
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
  std::atomic<bool> holds_{false};
  std::mutex held_mutex_;
  Fences held_;
  std::mutex local_mutex_;
  uint64_t local_charged_ = 0;
};

// Returns the context that is current on this thread. CUDA_ERROR_INVALID_CONTEXT: there is none.
// CUDA_ERROR_CONTEXT_IS_DESTROYED, or the context's sticky error.
CUresult CurrentContext(std::shared_ptr<Context>* context);
// The same, but ignores the sticky error.
CUresult AnyCurrentContext(std::shared_ptr<Context>* context);

// Finds the stream of an operand (0, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD or a handle). Returns
// the status of its context.
CUresult FindStream(CUstream operand, std::shared_ptr<Stream>* stream);

// Waits for the fences and returns the context's status afterwards.
CUresult WaitIn(Context& context, const Fences& fences);

}  // namespace rgpu::emu
