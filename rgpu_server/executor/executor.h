// The executor: everything a session has on the device, and the rules by which commands reach it.
//
// One lock guards all of it.  A handler runs with the lock held and lets go of it (`Unlocked`)
// around whatever may wait: the driver where it may block, another thread, the network.  Handlers
// of posted commands run one after the other, in order; handlers of calls may overlap with them
// while unlocked.
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

// Images that are on their way, in all; one image may take all of it.
inline constexpr uint64_t kMaxImageBytes = 256U << 20;
inline constexpr size_t kMaxImages = 64;

// The pool that cuDeviceGetDefaultMemPool answers with: not an id that a client mints.
inline constexpr uint64_t kDefaultPool = 1ULL << 63;
// Pools that the client has destroyed and that still have allocations are found behind this.
inline constexpr uint64_t kDestroyedPools = 1ULL << 62;

// Where a command goes.
struct Target {
  std::shared_ptr<Context> context;
  std::shared_ptr<Stream> stream;
};

// What a piece of work needs until it is complete.
struct Work {
  uint64_t bytes = 0;  // staged
  std::shared_ptr<const void> keep;
  const std::shared_ptr<Estimate>* kind = nullptr;  // of device work, and how much of it
  uint64_t units = 0;
};

// What is known of how long copies and sets take, in ns per byte.
struct CopyEstimates {
  // What a copy of 4 bytes takes is its start, and says nothing about one of 4 MiB.
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

  // Runs `function` without the lock.
  template <typename F>
  auto Unlocked(F&& function) {
    mutex_.unlock();
    auto result = function();
    mutex_.lock();
    return result;
  }

  // --- errors (errors of the session, executor.cc)
  DeferredErrors& deferred() { return deferred_; }
  CUresult sticky() const { return sticky_.load(std::memory_order_relaxed); }
  // The session is spent: every call answers `error` from now on.  Tells the client once.
  void SetSticky(CUresult error, uint32_t context, const std::string& sentence);
  // For results of our own driver calls between commands.
  void Check(CUresult result, uint32_t context);
  // The client prints the sentence: why a call fails.  Each kind is told once in a session.
  enum class Told : uint32_t { kThreads = 1, kCalls = 2 };
  void Tell(Told kind, const std::string& sentence);

  // --- contexts and streams (contexts.cc, streams.cc)
  // Makes the command's context current on this thread.  CUDA_ERROR_INVALID_CONTEXT: there is none.
  CUresult Enter(const Command& command, std::shared_ptr<Context>* context);
  CUresult MakeCurrent(const Context& context);
  CUresult Find(const Command& command, uint64_t operand, Target* target);
  // As Find, for a posted launch or copy: it took a credit, whatever becomes of it.
  CUresult FindCredited(const Command& command, uint64_t operand, Target* target);
  // Puts work into a stream: `call(CUstream)` is the driver call, which does not wait.
  template <typename F>
  CUresult Issue(Stream& stream, Work work, F&& call) {
    if (const CUresult result = Prepare(stream); result != CUDA_SUCCESS) return result;
    return Issued(stream, std::move(work), call(stream.handle));
  }
  // In `call`: a host function of ours in which the stream waits for the client.  `place` is for
  // the Gate::ClientWait in it, and written before it runs.
  CUresult LaunchWait(Stream& stream, CUhostFn function, void* argument, Stall* place);
  // Makes the stream wait for `point`.
  CUresult WaitFor(Stream& stream, const Point& point, unsigned int flags);
  // Everything issued to `stream` so far as a point; null: it is known to be complete.
  // `quiet`: the caller waits itself, the poller need not be woken.
  CUresult EverythingIn(Stream& stream, bool quiet, std::shared_ptr<Point>* point);
  // The same for all streams of a context that are not known to be complete.
  CUresult EverythingIn(Context& context, bool quiet, std::vector<std::shared_ptr<Point>>* points);
  // The same for all contexts.
  void EverythingInAll(bool quiet, std::vector<std::shared_ptr<Point>>* points);
  // Records a fresh event in `stream`; the caller's own, not a marker.
  CUresult Record(Stream& stream, unsigned int flags, std::shared_ptr<Point>* point);
  // Takes the stream out of its context; its work goes on.
  void DropStream(Stream& stream);
  // Destroys the per-thread streams of a client thread that ended.
  void DropThread(uint32_t thread);
  // Forgets the context and all that lies in it.  Returns the bytes to release when the driver has
  // destroyed it.
  uint64_t DropContext(const std::shared_ptr<Context>& context);

  // --- waiting (waiters.cc)
  // Waits, without the lock, in a thread that gives up the decoder if it takes long.
  CUresult Wait(const std::shared_ptr<Point>& point, uint32_t context);
  CUresult WaitAll(const std::vector<std::shared_ptr<Point>>& points, uint32_t context);
  // Stands for a stream, in the driver's thread, until these deliveries are in the outbox: host
  // bytes that are read or written behind them must find them landed.
  void AwaitInStream(Frontier* frontier);
  // CUDA_ERROR_NOT_READY, or what the work ended with.
  CUresult Query(Point& point);
  // Returns the credits of commands that put nothing into the stream, or with those before them.
  void ReturnCreditsOf(Stream& stream);
  // Finds out what is complete, lets go of what it kept, collects credit notices.
  void Advance(Stream& stream);
  // Lets go of what complete work kept, and leaves the rest of Advance to whoever comes by.
  void Reclaim(Stream& stream);

  // What comes behind a place that is complete: a number for the outbox.
  uint64_t Behind(Frontier* frontier) const;
  // The reply comes behind what is in `frontier`, and need not wait for other bulk in the outbox.
  void ComesBehind(const Command& command, Frontier* frontier) const;
  // From now on streams wait for each other in ways that frontiers do not tell.
  void OrderIsHidden() { order_is_hidden_ = true; }

  // --- notices, which wait for the next write
  // For one that comes behind this many frames of deliveries, and not behind other bulk.
  transport::FrameBuffer& notices(uint64_t behind) {
    notices_behind_ = std::max(notices_behind_, behind);
    return notices_;
  }
  // Leaves them to the next write.
  void HandOverNotices();
  // Writes them if nobody else is about to.  Lets go of the lock.
  void FlushNotices();
  // Frames of deliveries that are in the outbox or about to be.
  uint64_t deliveries_sent() const { return deliveries_sent_.load(std::memory_order_acquire); }
  // The number of the next one.
  uint64_t CountDelivery() { return deliveries_sent_.fetch_add(1, std::memory_order_acq_rel) + 1; }
  std::condition_variable& changed() { return changed_; }

  // --- memory
  // Charges; if the lease is full, first waits for frees that are on their way.  May let go of the
  // lock.  CUDA_ERROR_OUT_OF_MEMORY: refused, and counted as such.
  CUresult Charge(uint64_t bytes);
  // The same without waiting for the device: what is complete is taken back.
  CUresult ChargeNow(uint64_t bytes);
  // The client is told once that its lease has no room, or that the driver has none for bytes that
  // the lease has.
  void LeaseIsFull(uint64_t bytes) { shortage_.LeaseIsFull(ledger_, bytes, outbox_); }
  void DeviceIsFull(uint64_t bytes) { shortage_.DeviceIsFull(ledger_, bytes, outbox_); }
  void NameLease(const std::string& name) { shortage_.Name(name); }
  // Makes the charges of pools what the driver says; the first lets them give back what they can,
  // after a short wait for what is being freed to them.
  void ReconcilePools();
  void ReconcilePool(Pool& pool);
  // As the driver does when its user synchronises, which the worker does not: pools give back what
  // they hold above their threshold.  `all`: nothing is left that could be freed.
  void TrimAfterWait(bool all);
  Granules& granules() { return granules_; }
  // Of the heap that all contexts of the emulated device share: it does not go with any of them.
  uint64_t& heap_charged() { return heap_charged_; }
  // Whether the client wishes to know how long loads take (COMPILED).
  bool& tells_compiled() { return tells_compiled_; }
  // What is done to the device's memory while it lives is not mistaken for a module's: a Measure
  // waits for all Changes, and Changes wait for it.  Both may let go of the lock.
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
  // Whether the client has any besides the legacy stream.
  bool has_streams() const;
  CopyEstimates& copies() { return copies_; }
  // How long a command that is about to be dispatched will keep the device, roughly.
  uint64_t Predict(const Command& command) const;
  // Marks what `stream` has not marked yet.
  void MarkNow(Stream& stream) { Mark(stream, !gate_.alone()); }
  uint64_t& image_bytes() { return image_bytes_; }

  // Threads that the device can run at once: what local memory is provided for.
  uint64_t resident_threads();

 private:
  uint64_t PredictCopy(const Command& command, uint64_t most) const;
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
  std::condition_variable changed_;  // a delivery was sent, a reaped thing is gone
  Role role_;
  Shortage shortage_;
  DeferredErrors deferred_;
  std::atomic<CUresult> sticky_{CUDA_SUCCESS};
  transport::FrameBuffer notices_;
  uint64_t notices_behind_ = 0;
  bool order_is_hidden_ = false;
  std::atomic<uint64_t> deliveries_sent_{0};

  size_t named_threads_ = 0;       // of all contexts, in their maps of per-thread streams
  size_t per_thread_streams_ = 0;  // those that got one
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
