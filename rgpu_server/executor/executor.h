// The executor: everything that a session has on the device, and the rules by which commands reach
// the device.
//
// One lock guards all of it. A handler runs with the lock held and releases it (`Unlocked`) around
// whatever may wait: driver calls that may block, other threads, the network. Handlers of posted
// commands run one after the other, in order. Handlers of calls may overlap with them while they
// have released the lock.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "gen/work.gen.h"
#include "rgpu_common/native/transport/outbox.h"
#include "rgpu_server/executor/command.h"
#include "rgpu_server/executor/directs.h"
#include "rgpu_server/executor/driver.h"
#include "rgpu_server/executor/errors.h"
#include "rgpu_server/executor/gate.h"
#include "rgpu_server/executor/granules.h"
#include "rgpu_server/executor/images.h"
#include "rgpu_server/executor/ledger.h"
#include "rgpu_server/executor/objects.h"
#include "rgpu_server/executor/poller.h"
#include "rgpu_server/executor/pulls.h"
#include "rgpu_server/executor/reaper.h"
#include "rgpu_server/executor/role.h"
#include "rgpu_server/executor/shortage.h"
#include "rgpu_server/executor/table.h"

namespace rgpu::exec {

// All images that the client is sending, together; one image may use the whole limit.
inline constexpr uint64_t kMaxImageBytes = 256U << 20;
inline constexpr size_t kMaxImages = 64;

// The id that cuDeviceGetDefaultMemPool returns; clients cannot use it for their own pools.
inline constexpr uint64_t kDefaultPool = 1ULL << 63;
// Ids from here on are for pools that the client has destroyed and that still have allocations.
inline constexpr uint64_t kDestroyedPools = 1ULL << 62;

// The context and stream that a command goes to.
struct Target {
  std::shared_ptr<Context> context;
  std::shared_ptr<Stream> stream;
};

// What a piece of work holds until it completes, and how its device time is predicted.
struct Work {
  uint64_t bytes = 0;  // bytes of staging memory
  std::shared_ptr<const void> keep;
  const std::shared_ptr<Estimate>* kind = nullptr;  // null: not device work
  uint64_t units = 0;                               // of `kind`: launches or bytes
};

// Estimated duration of copies and sets, in ns per byte.
struct CopyEstimates {
  // Smaller copies count as this many bytes: start-up dominates their time, so a copy of 4 bytes
  // says nothing about one of 4 MiB.
  static constexpr uint64_t kLeastBytes = 64U << 10;
  static constexpr double kTrust = 16;
  static std::shared_ptr<Estimate> Guess(double ns_per_byte) {
    return std::make_shared<Estimate>(ns_per_byte, kLeastBytes, kTrust);
  }

  std::shared_ptr<Estimate> in = Guess(0.1);
  std::shared_ptr<Estimate> out = Guess(0.1);
  std::shared_ptr<Estimate> within = Guess(0.02);
  std::shared_ptr<Estimate> set = Guess(0.02);
};

class Executor {
 public:
  struct Lease {
    lease::Page* page;
    uint32_t slot;
    base::UniqueFd signal;
  };
  Executor(const Driver& driver, Ledger& ledger, transport::Outbox& outbox, CUdevice device,
           Lease lease);

  const Driver& driver() const { return driver_; }
  Ledger& ledger() { return ledger_; }
  transport::Outbox& outbox() { return outbox_; }
  std::mutex& mutex() { return mutex_; }
  Role& role() { return role_; }
  CUdevice device() const { return device_; }

  // Runs `function` with the executor's lock released.
  template <typename F>
  auto Unlocked(F&& function) {
    mutex_.unlock();
    auto result = function();
    mutex_.lock();
    return result;
  }

  // --- errors (executor.cc)
  DeferredErrors& deferred() { return deferred_; }
  CUresult sticky() const { return sticky_.load(std::memory_order_relaxed); }
  // Makes `error` the result of every later call of the session, and tells the client once.
  void SetSticky(CUresult error, uint32_t context, const std::string& sentence);
  // Makes the session sticky if `result` of a driver call between commands is a sticky error.
  void Check(CUresult result, uint32_t context);
  // Sends the client a sentence to print that says why a call fails. Each kind is sent once per
  // session.
  enum class Told : uint32_t { kThreads = 1, kCalls = 2 };
  void Tell(Told kind, const std::string& sentence);

  // --- contexts and streams (contexts.cc, streams.cc)
  // Makes the command's context current on this thread. Returns CUDA_ERROR_INVALID_CONTEXT if there
  // is no such context.
  CUresult Enter(const Command& command, std::shared_ptr<Context>* context);
  CUresult MakeCurrent(const Context& context);
  CUresult Find(const Command& command, uint64_t operand, Target* target);
  // Like Find, for a posted launch or copy. The command took a credit; the credit is counted even
  // if the command fails.
  CUresult FindCredited(const Command& command, uint64_t operand, Target* target);
  // Puts work into a stream. `call(CUstream)` is the driver call, which must not block.
  template <typename F>
  CUresult Issue(Stream& stream, Work work, F&& call) {
    if (const CUresult result = Prepare(stream); result != CUDA_SUCCESS) return result;
    return Issued(stream, std::move(work), call(stream.handle));
  }
  // Launches a host function of ours in which the stream waits for the client; used within the
  // `call` of Issue. `place` receives the stall that the function passes to Gate::ClientWait,
  // before the function can run.
  CUresult LaunchWait(Stream& stream, CUhostFn function, void* argument, Stall* place);
  // Makes the stream wait for `point`.
  CUresult WaitFor(Stream& stream, const Point& point, unsigned int flags);
  // Returns a point that completes when everything issued to `stream` so far is complete; null if
  // that is known already. `quiet`: the caller waits itself, so the poller need not wake.
  CUresult EverythingIn(Stream& stream, bool quiet, std::shared_ptr<Point>* point);
  // The same for all streams of a context; streams known to be complete add no point.
  CUresult EverythingIn(Context& context, bool quiet, std::vector<std::shared_ptr<Point>>* points);
  // The same for all contexts.
  void EverythingInAll(bool quiet, std::vector<std::shared_ptr<Point>>* points);
  // Records an event for the caller in `stream`. It is not a marker: it returns no credits.
  CUresult Record(Stream& stream, unsigned int flags, std::shared_ptr<Point>* point);
  // Takes the stream out of its context; work that was issued still completes.
  void DropStream(Stream& stream);
  // Destroys the per-thread streams of a client thread that has ended.
  void DropThread(uint32_t thread);
  // Forgets the context and every object in it. Returns the bytes that the caller releases when the
  // driver has destroyed the context.
  uint64_t DropContext(const std::shared_ptr<Context>& context);

  // --- waiting (waiters.cc)
  // Waits without the lock. A long wait gives up the decoder's role first.
  CUresult Wait(const std::shared_ptr<Point>& point, uint32_t context);
  CUresult WaitAll(const std::vector<std::shared_ptr<Point>>& points, uint32_t context);
  // Called from a host function, so in the driver's thread: holds the stream until these deliveries
  // are in the outbox. A later copy that reads or writes the same host memory must find the bytes
  // there.
  void AwaitInStream(Frontier* frontier);
  // Returns CUDA_ERROR_NOT_READY, or the result of the completed work.
  CUresult Query(Point& point);
  // Returns the credits of commands that put nothing into the stream; if earlier work is still
  // outstanding, its marker returns them.
  void ReturnCreditsOf(Stream& stream);
  // Finds completed markers of the stream, releases what they kept, and queues credit notices.
  void Advance(Stream& stream);
  // Releases what completed markers kept; the rest is left to the next Advance.
  void Reclaim(Stream& stream);

  // Returns how many delivery frames must precede a message that reports a completed point.
  uint64_t Behind(Frontier* frontier) const;
  // Sets that number for the reply of `command`, so that the reply may overtake other bulk frames.
  void ComesBehind(const Command& command, Frontier* frontier) const;
  // Called when streams order each other through values in memory, which frontiers do not show.
  void OrderIsHidden() { order_is_hidden_ = true; }

  // --- notices (kept until the next write)
  // Returns the buffer for a notice that must follow at least `behind` delivery frames.
  transport::FrameBuffer& notices(uint64_t behind) {
    notices_behind_ = std::max(notices_behind_, behind);
    return notices_;
  }
  // Queues the notices in the outbox; the next write sends them.
  void HandOverNotices();
  // Sends the notices. Releases the lock meanwhile.
  void FlushNotices();
  // How many delivery frames are in the outbox or are about to be.
  uint64_t deliveries_sent() const { return deliveries_sent_.load(std::memory_order_acquire); }
  // Counts one more delivery frame and returns its number.
  uint64_t CountDelivery() { return deliveries_sent_.fetch_add(1, std::memory_order_acq_rel) + 1; }
  std::condition_variable& changed() { return changed_; }

  // --- memory
  // Charges the lease. If the lease is full, first waits for frees under way. May release the lock.
  // CUDA_ERROR_OUT_OF_MEMORY: refused, and counted as a refusal.
  CUresult Charge(uint64_t bytes);
  // The same without waiting for the device; pools give back what they do not use.
  CUresult ChargeNow(uint64_t bytes);
  // Tell the client, once per session, that its lease has no room, or that the device has none
  // although the lease has.
  void LeaseIsFull(uint64_t bytes) { shortage_.LeaseIsFull(ledger_, bytes, outbox_); }
  void DeviceIsFull(uint64_t bytes) { shortage_.DeviceIsFull(ledger_, bytes, outbox_); }
  void NameLease(const std::string& name) { shortage_.Name(name); }
  // Sets the charges of all pools to what the driver reports. ReconcilePools first waits briefly
  // for pending frees and trims the pools.
  void ReconcilePools();
  void ReconcilePool(Pool& pool);
  // Trims pools to their release threshold after the client synchronised, as the driver would (the
  // worker itself never synchronises). `all`: no free is pending any more in any pool.
  void TrimAfterWait(bool all);
  Granules& granules() { return granules_; }
  // The charge for the device-side heap, which all contexts of the emulated device share. It stays
  // when a context goes.
  uint64_t& heap_charged() { return heap_charged_; }
  // Whether the client asked for COMPILED notices (how long loads take).
  bool& tells_compiled() { return tells_compiled_; }
  // A Measure compares the device's free memory before and after a load. No other thread may
  // allocate or free meanwhile, so each allocation or free holds a Change, and the two exclude each
  // other. Both constructors may release the lock.
  class Change {
   public:
    explicit Change(Executor& executor);
    ~Change();
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;

   private:
    Executor& executor_;
  };
  class Measure {
   public:
    explicit Measure(Executor& executor);
    ~Measure();
    Measure(const Measure&) = delete;
    Measure& operator=(const Measure&) = delete;

   private:
    Executor& executor_;
  };
  bool measuring() const { return measuring_; }

  Table<Context>& contexts() { return contexts_; }
  Table<Stream>& streams() { return streams_; }
  Table<Event>& events() { return events_; }
  Table<Code>& modules() { return modules_; }
  Table<Code>& libraries() { return libraries_; }
  Table<Function>& functions() { return functions_; }
  Table<Function>& kernels() { return kernels_; }
  Table<Pool>& pools() { return pools_; }
  Table<Link>& links() { return links_; }
  Table<Image>& images() { return images_; }
  Ranges& ranges() { return ranges_; }
  Reaper& reaper() { return reaper_; }
  Poller& poller() { return poller_; }
  Pulls& pulls() { return pulls_; }
  Directs& directs() { return directs_; }
  Gate& gate() { return gate_; }
  // Whether the client has any stream besides the legacy stream.
  bool has_streams() const;
  CopyEstimates& copies() { return copies_; }
  // Predicts the device time of a command that is about to be dispatched, in ns.
  uint64_t Predict(const Command& command) const;
  // Records a marker for what `stream` has not marked yet.
  void MarkNow(Stream& stream) { Mark(stream, !gate_.alone()); }
  uint64_t& image_bytes() { return image_bytes_; }

  // How many threads the device can run at once; local memory is provided for all of them.
  uint64_t resident_threads();

 private:
  uint64_t PredictLaunch(const DeviceWork& launch) const;
  uint64_t MostPredicted(WorkBound bound) const;
  bool ChargeAfterOthers(uint64_t bytes);
  void WaitForPoolFrees();
  void TrimPools();
  template <typename Condition>
  void WaitUntil(Condition condition);
  CUresult FindStream(const Command& command, uint64_t operand, Target* target);
  CUresult PerThreadStream(Context& context, uint32_t thread, std::shared_ptr<Stream>* stream);
  CUresult OpenPerThread(Context& context, Stream& stream);
  CUresult TooManyThreads();
  void GiveBackCredit(Stream& stream);
  CUresult Prepare(Stream& stream);
  CUresult LeaveLast(Stream& stream);
  CUresult ApplyFences(Stream& stream);
  CUresult Issued(Stream& stream, Work work, CUresult result);
  CUresult Mark(Stream& stream, bool quiet);
  void Inherit(Stream& stream);
  void ComeBehind(Stream& stream);
  CUresult MarkBefore(Stream& stream, const Stalls& next);
  void ReturnCredits(Stream& stream, uint64_t credited);

  const Driver& driver_;
  Ledger& ledger_;
  transport::Outbox& outbox_;
  const CUdevice device_;
  std::mutex mutex_;
  std::condition_variable changed_;  // a delivery was sent, or the reaper finished an item
  Role role_;
  Shortage shortage_;
  DeferredErrors deferred_;
  std::atomic<CUresult> sticky_{CUDA_SUCCESS};
  transport::FrameBuffer notices_;
  uint64_t notices_behind_ = 0;
  bool order_is_hidden_ = false;
  std::atomic<uint64_t> deliveries_sent_{0};

  size_t named_threads_ = 0;       // in all contexts' maps of per-thread streams
  size_t per_thread_streams_ = 0;  // per-thread streams that the driver has created
  uint32_t told_ = 0;
  Table<Context> contexts_{64};
  Table<Stream> streams_{kMaxStreams};
  Table<Event> events_;
  Table<Code> modules_;
  Table<Code> libraries_;
  Table<Function> functions_;
  Table<Function> kernels_;
  Table<Pool> pools_{1024};
  Table<Link> links_{1024};
  Table<Image> images_{kMaxImages};
  Ranges ranges_;
  uint64_t image_bytes_ = 0;
  Granules granules_;
  uint64_t heap_charged_ = 0;
  bool tells_compiled_ = false;
  uint32_t changing_ = 0;
  bool measuring_ = false;
  uint64_t resident_threads_ = 0;
  std::shared_ptr<Context> last_entered_;

  Poller poller_;
  Reaper reaper_;
  Pulls pulls_;
  Directs directs_;
  CopyEstimates copies_;
  Gate gate_;
};

}  // namespace rgpu::exec
