// The channel: the one ordered command stream of the session.
//
// Sending.  Every thread appends frames to one buffer under `append_mutex_`, which fixes their
// order and sequence numbers; writing takes `wire_mutex_` first and then swaps the buffer out, so a
// thread that appends never waits for another one's write.  Lock order: wire, append, receive.
//
// Receiving.  The thread that waits reads for itself; when several wait, one of them (the leader)
// reads for all and hands the role over when its own answer has come.  A pump reads when nobody
// waits but the worker may speak unasked.  Handlers of frames never take the sending locks, so a
// sender that finds the connection full may read while it holds them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gen/codec.gen.h"
#include "gen/cuda_abi.gen.h"
#include "rgpu_client/shim/host_region.h"
#include "rgpu_client/shim/tables/credits.h"
#include "rgpu_client/shim/tables/objects.h"
#include "rgpu_client/shim/thread_state.h"
#include "rgpu_common/native/transport/frame_io.h"

namespace rgpu::shim {

// What the channel does with notices that concern more than itself.  Called by whichever thread
// reads, without locks.
class NoticeHandler {
 public:
  virtual void OnCredit(const wire::FrameHeader& header, uint64_t stream, uint64_t completed) = 0;
  virtual void OnCompleted(const wire::FrameHeader& header, uint64_t object, uint64_t version,
                           uint64_t time_ns) = 0;
  virtual void OnLog(uint32_t level, std::string_view text) = 0;
  // The driver compiled or loaded a kernel; no name: a module.
  virtual void OnCompiled(uint64_t, std::string_view) {}
  virtual void OnPull(uint64_t pull, uint64_t offset, uint64_t bytes, const HostRegion& source) = 0;
  // Said once: why every later call fails.
  virtual void OnSticky(CUresult status, std::string_view sentence) = 0;

 protected:
  ~NoticeHandler() = default;
};

// Who issues a command: what every frame's header carries.
struct Issuer {
  ThreadState* thread = nullptr;
  uint32_t context = 0;
};

// Bulk of a posted command, and what it counts for.
struct PostOptions {
  const void* bulk = nullptr;
  size_t bulk_bytes = 0;
  bool lent = false;  // the bulk stays as it is until TakeBack
  bool more = false;
  Context* work = nullptr;  // work on the device: marks the context and `stream` as busy
  Stream* stream = nullptr;
  bool counted = false;  // a launch, copy or set: takes a credit of `stream`
  uint64_t credit_bytes = 0;
  uint64_t* seq = nullptr;  // out
};

// A caller of Call that wants the reply's bulk.
class ReplySink {
 public:
  // Must take exactly `bytes` of bulk from the reader.  False: out of bounds, the session ends.
  virtual bool OnData(uint64_t offset, uint32_t bytes, transport::FrameReader& reader) = 0;

 protected:
  ~ReplySink() = default;
};

class Channel {
 public:
  Channel(std::unique_ptr<transport::Connection> connection,
          std::unique_ptr<transport::FrameReader> reader, NoticeHandler* handler);
  ~Channel() = delete;  // threads may be in it until the process ends

  void SetLimits(const Credits::Limits& limits) { limits_ = limits; }
  void SetMissing(const std::vector<uint16_t>& opcodes);
  // The server does not know the opcode, or knows it with another layout.
  bool Lacks(Opcode opcode) const {
    const auto number = static_cast<size_t>(opcode);
    return number < missing_.size() && missing_[number];
  }

  // Posts a command.  Returns the session's sticky error, or CUDA_ERROR_NOT_SUPPORTED for an opcode
  // that the server lacks, or CUDA_ERROR_INVALID_VALUE when bulk could not be read (zeros were
  // sent) or the request is too long for a frame (nothing was sent).
  template <typename Op>
  CUresult Post(const Issuer& issuer, const typename Op::Request& request,
                const PostOptions& options = {}) {
    static_assert(!Op::kIsCall);
    if (const CUresult status = Ready(Op::kOpcode); status != CUDA_SUCCESS) return status;
    if (const CUresult status = WaitForCredit(options); status != CUDA_SUCCESS) return status;
    const bool direct = options.bulk_bytes >= kDirectBulkBytes;
    std::unique_lock wire(wire_mutex_, std::defer_lock);
    if (direct) {
      const std::lock_guard turn(turn_mutex_);
      wire.lock();
    }
    std::unique_lock append(append_mutex_);
    wire::Writer head =
        Begin(issuer, Op::kOpcode, static_cast<uint8_t>(options.more ? wire::kMore : 0));
    Put(head, request);
    if (!Fits()) return CUDA_ERROR_INVALID_VALUE;
    Account(issuer, options);
    if (direct) return SendDirect(append, options);
    const bool good = End(options);
    const CUresult status = AfterAppend(append);
    return good ? status : CUDA_ERROR_INVALID_VALUE;
  }

  // Sends a command and waits for its reply.  The reply's byte fields stay valid until the thread's
  // next call.  On failure `reply` is filled if the reply had one.
  template <typename Op>
  CUresult Call(const Issuer& issuer, const typename Op::Request& request,
                typename Op::Reply* reply, ReplySink* sink = nullptr) {
    static_assert(Op::kIsCall);
    if (const CUresult status = Ready(Op::kOpcode); status != CUDA_SUCCESS) return status;
    Waiter waiter;
    waiter.sink = sink;
    waiter.head = &issuer.thread->reply;
    {
      const std::lock_guard append(append_mutex_);
      wire::Writer head = Begin(issuer, Op::kOpcode, wire::kWantsReply);
      Put(head, request);
      if (!Fits()) return CUDA_ERROR_INVALID_VALUE;
      EndCall(issuer, waiter, Op::kReports);
    }
    Flush();
    const CUresult status = WaitForReply(waiter);
    if (status == CUDA_SUCCESS || !waiter.head->empty()) {
      wire::Reader reader(waiter.head->data(), waiter.head->size());
      typename Op::Reply parsed{};
      if (Get(reader, &parsed)) {
        *reply = parsed;
      } else if (status == CUDA_SUCCESS) {
        return Broken("the server sent a reply that does not decode");
      }
    }
    return status;
  }

  // A posted command whose bytes come later (rgpuCopyDtoHLater) or are asked for
  // (rgpuCopyHtoDPull).
  template <typename Op>
  CUresult PostDelivered(const Issuer& issuer, const typename Op::Request& request,
                         const PostOptions& options, const HostRegion& region, bool pulled) {
    if (const CUresult status = Ready(Op::kOpcode); status != CUDA_SUCCESS) return status;
    if (const CUresult status = WaitForCredit(options); status != CUDA_SUCCESS) return status;
    std::unique_lock append(append_mutex_);
    wire::Writer head = Begin(issuer, Op::kOpcode, 0);
    Put(head, request);
    if (!Fits()) return CUDA_ERROR_INVALID_VALUE;
    Account(issuer, options);
    Expect(region, pulled);
    const bool good = End(options);
    const CUresult status = AfterAppend(append);
    return good ? status : CUDA_ERROR_INVALID_VALUE;
  }

  CUresult sticky() const { return static_cast<CUresult>(sticky_.load(std::memory_order_acquire)); }
  // From now on every call answers `status`.  The first one wins.
  void SetSticky(CUresult status, std::string_view sentence);

  // Memory of which commands with `lent` bulk were posted is its owner's again.
  void TakeBack(const void* memory, size_t bytes) { connection_->TakeBack(memory, bytes); }

  // Sends what is buffered.
  void Flush();
  // Reads what is there without blocking, if nobody else reads.
  void Poll();
  // Waits until no delivery or pull that touches [address, address + bytes) is outstanding.
  CUresult WaitForDeliveries(uint64_t address, uint64_t bytes);
  // One is outstanding there now.
  bool ExpectsIn(uint64_t address, uint64_t bytes);
  bool expects_deliveries() const { return expected_count_.load() != 0; }
  // The last posted command of any thread: what a wait for everything covers.
  uint64_t last_posted() const { return last_posted_.load(std::memory_order_acquire); }

  // Numbers for the trace and the benchmarks.
  uint64_t commands_sent() const { return commands_sent_.load(); }
  uint64_t writes() const { return writes_.load(); }
  uint64_t bulk_bytes() const { return bulk_bytes_.load(); }
  uint64_t syncs() const { return syncs_.load(); }

  // At process exit: sends what is buffered if nobody holds the locks, within `timeout_ms`.  That
  // the connection ends is no longer worth a word.
  void FlushAtExit(int timeout_ms);
  void Shutdown() { connection_->Shutdown(); }
  // In a forked child.
  void Abandon() { connection_->Abandon(); }

 private:
  friend class Pump;
  friend class Flusher;
  friend class LeadHook;
  class Landing;
  static constexpr uint32_t kBatchCommands = 64;
  static constexpr size_t kBatchBytes = 16U << 10;
  static constexpr size_t kDirectBulkBytes = 8U << 10;
  static constexpr uint64_t kIdleNs = 200'000;

  struct Waiter {
    uint64_t seq = 0;
    bool done = false;
    int32_t status = 0;
    uint64_t watermark = 0;
    ReplySink* sink = nullptr;
    std::vector<uint8_t>* head = nullptr;
    std::condition_variable wake;
  };
  // Bytes that the worker will send, or ask for, for a command of the past.
  struct Expected {
    HostRegion region;
    bool pulled = false;        // asked for, not sent
    uint64_t pulled_bytes = 0;  // of it, given so far
  };

  // channel_send.cc
  CUresult Ready(Opcode opcode) const;
  wire::Writer Begin(const Issuer& issuer, Opcode opcode, uint8_t flags);
  bool Fits();
  bool End(const PostOptions& options);
  void EndCall(const Issuer& issuer, Waiter& waiter, bool reports);
  void Account(const Issuer& issuer, const PostOptions& options);
  void Expect(const HostRegion& region, bool pulled);
  CUresult AfterAppend(std::unique_lock<std::mutex>& append);
  CUresult SendDirect(std::unique_lock<std::mutex>& append, const PostOptions& options);
  void WriteBuffer(int idle_timeout_ms);
  CUresult Write(iovec* parts, int count, int idle_timeout_ms);
  CUresult WaitForCredit(const PostOptions& options);
  CUresult Broken(std::string_view sentence);

  // channel_receive.cc
  CUresult WaitForReply(Waiter& waiter);
  template <typename Done>
  void ReadUntil(std::condition_variable& wake, Done done);
  bool ReadWithoutBlocking();
  bool ExpectedMeets(uint64_t address, uint64_t bytes) const;
  bool ReadBuffered();
  void Handle(const wire::FrameHeader& header, wire::ByteView head);
  void HandleReply(const wire::FrameHeader& header, wire::ByteView head);
  bool HandleData(const wire::FrameHeader& header, wire::ByteView head);
  bool HandleDelivery(const wire::FrameHeader& header, wire::ByteView head);
  bool HandleNotice(const wire::FrameHeader& header, wire::ByteView head);
  bool HandleProgress(const wire::FrameHeader& header, wire::Reader& reader);
  bool HandlePull(const wire::FrameHeader& header, wire::Reader& reader);
  void Finish(uint64_t seq, uint64_t pulled, bool last);
  void Acknowledge(uint64_t seq);
  // The reply is here, and all bytes that it says are complete.  With receive_mutex_.
  bool IsAnswered(const Waiter& waiter) const { return waiter.done && landed_ >= waiter.watermark; }
  void HandOver();
  void WaitForLanding(std::unique_lock<std::mutex>& lock);
  void Lost(std::string_view sentence);
  std::string LostSentence(const char* plain) const;
  void StopWaiting();

  const std::unique_ptr<transport::Connection> connection_;
  const std::unique_ptr<transport::FrameReader> reader_;
  NoticeHandler* const handler_;
  Credits::Limits limits_;
  std::vector<bool> missing_;
  std::atomic<int> sticky_{0};
  std::atomic<bool> leaving_{false};

  std::mutex turn_mutex_;  // held while wire_mutex_ is waited for: whoever asks first is next
  std::mutex wire_mutex_;
  transport::FrameBuffer sending_;  // wire_mutex_

  std::mutex append_mutex_;
  transport::FrameBuffer buffer_;               // append_mutex_
  std::atomic<uint64_t> seq_{0};                // written with append_mutex_
  std::atomic<uint64_t> last_posted_{0};        // written with append_mutex_
  std::atomic<uint64_t> acknowledged_{0};       // written by readers
  std::atomic<uint64_t> buffered_since_ns_{0};  // first frame in buffer_, 0: empty
  std::atomic<bool> buffer_full_{false};        // a batch: the flusher need not wait for its age
  uint64_t last_append_ns_ = 0;                 // append_mutex_
  std::atomic<uint64_t> commands_sent_{0};
  std::atomic<uint64_t> writes_{0};
  std::atomic<uint64_t> bulk_bytes_{0};  // both ways
  std::atomic<uint64_t> syncs_{0};       // calls, which wait for an answer

  std::mutex receive_mutex_;
  bool leading_ = false;          // a thread is in reader_
  std::vector<Waiter*> waiters_;  // calls without an answer
  uint32_t watchers_ = 0;         // threads that wait for a notice, on progress_
  std::condition_variable progress_;
  std::map<uint64_t, Expected> expected_;  // by sequence number
  std::atomic<uint64_t> expected_count_{0};
  uint64_t landed_ = 0;  // delivery frames that are in place
  bool lost_ = false;
  bool landing_ = false;  // the thread in reader_ puts bytes into memory of the program
  std::condition_variable landing_over_;
};

}  // namespace rgpu::shim
