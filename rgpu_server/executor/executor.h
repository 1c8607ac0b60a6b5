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
#include <vector>

#include "gen/work.gen.h"
#include "rgpu_common/native/transport/outbox.h"
#include "rgpu_server/executor/command.h"
#include "rgpu_server/executor/directs.h"
#include "rgpu_server/executor/driver.h"
#include "rgpu_server/executor/errors.h"
#include "rgpu_server/executor/exports.h"
#include "rgpu_server/executor/gate.h"
#include "rgpu_server/executor/host_calls.h"
#include "rgpu_server/executor/memory_account.h"
#include "rgpu_server/executor/page_traffic.h"
#include "rgpu_server/executor/poller.h"
#include "rgpu_server/executor/pulls.h"
#include "rgpu_server/executor/reaper.h"
#include "rgpu_server/executor/role.h"
#include "rgpu_server/executor/session_objects.h"
#include "rgpu_server/executor/stream_order.h"

namespace rgpu::exec {

// The context and stream that a command goes to.
struct Target {
  std::shared_ptr<Context> context;
  std::shared_ptr<Stream> stream;
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
    ++times_unlocked_;
    mutex_.unlock();
    auto result = function();
    mutex_.lock();
    return result;
  }
  // A handler that finds this changed asks the gate again before it issues device work: the token
  // may have gone back while the lock was released.
  uint64_t times_unlocked() const { return times_unlocked_; }

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

  // --- contexts and streams (contexts.cc)
  // Makes the command's context current on this thread. Returns CUDA_ERROR_INVALID_CONTEXT if there
  // is no such context.
  CUresult Enter(const Command& command, std::shared_ptr<Context>* context);
  CUresult MakeCurrent(const Context& context);
  CUresult Find(const Command& command, uint64_t operand, Target* target);
  // Like Find, for a posted launch or copy. The command took a credit; the credit is counted even
  // if the command fails.
  CUresult FindCredited(const Command& command, uint64_t operand, Target* target);
  // Adds a point for each stream of all contexts that is not known to be complete
  // (StreamOrder::EverythingIn).
  void EverythingInAll(bool quiet, std::vector<std::shared_ptr<Point>>* points);
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

  // Whether the client asked for COMPILED notices (how long loads take).
  bool& tells_compiled() { return tells_compiled_; }

  SessionObjects& objects() { return objects_; }
  MemoryAccount& memory() { return memory_; }
  StreamOrder& order() { return order_; }
  Reaper& reaper() { return reaper_; }
  Poller& poller() { return poller_; }
  Pulls& pulls() { return pulls_; }
  HostCalls& host_calls() { return host_calls_; }
  const std::shared_ptr<HaltWatch>& halt_watch() const { return halt_watch_; }
  Directs& directs() { return directs_; }
  Exports& exports() { return exports_; }
  Gate& gate() { return gate_; }
  CopyEstimates& copies() { return copies_; }
  PageAllowance& pages() { return pages_; }
  // Predicts the device time of a command that is about to be dispatched, in ns.
  uint64_t Predict(const Command& command) const;

 private:
  uint64_t PredictLaunch(const CommandWork& launch) const;
  uint64_t PredictGraph(const CommandWork& launch) const;
  uint64_t MostPredicted(WorkBound bound) const;
  CUresult FindStream(const Command& command, uint64_t operand, Target* target);
  CUresult PerThreadStream(Context& context, uint32_t thread, std::shared_ptr<Stream>* stream);
  CUresult OpenPerThread(Context& context, Stream& stream);
  CUresult TooManyThreads();

  const Driver& driver_;
  Ledger& ledger_;
  transport::Outbox& outbox_;
  const CUdevice device_;
  std::mutex mutex_;
  uint64_t times_unlocked_ = 0;
  std::condition_variable changed_;  // a delivery was sent, or the reaper finished an item
  Role role_;
  DeferredErrors deferred_;
  std::atomic<CUresult> sticky_{CUDA_SUCCESS};
  transport::FrameBuffer notices_;
  uint64_t notices_behind_ = 0;
  bool order_is_hidden_ = false;
  std::atomic<uint64_t> deliveries_sent_{0};

  size_t named_threads_ = 0;       // in all contexts' maps of per-thread streams
  size_t per_thread_streams_ = 0;  // per-thread streams that the driver has created
  uint32_t told_ = 0;
  HostCalls host_calls_;  // the work of streams, in objects_, refers to it
  const std::shared_ptr<HaltWatch> halt_watch_;
  SessionObjects objects_;
  MemoryAccount memory_;
  StreamOrder order_;
  bool tells_compiled_ = false;
  std::shared_ptr<Context> last_entered_;

  Poller poller_;
  Reaper reaper_;
  Pulls pulls_;
  Directs directs_;
  Exports exports_;
  CopyEstimates copies_;
  PageAllowance pages_;
  Gate gate_;
};

}  // namespace rgpu::exec
