// The channel: the one ordered command stream of the session.
//
// Sending. Every thread appends its frames to one buffer under `append_mutex_`, which fixes their
// order and their sequence numbers. A writer takes `wire_mutex_` first and then swaps the buffer
// out, so that a thread that appends never waits for another thread's write. Lock order: wire,
// append, receive.
//
// Receiving. A thread that waits for an answer reads the connection itself. When several threads
// wait, one of them (the leader) reads for all, and passes the role on when its own answer has
// arrived. The pump reads while no thread waits but the worker may send deliveries or pulls. Frame
// handlers never take the sending locks, so a sender that finds the connection full may read while
// it holds them.
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
#include "rgpu_client/shim/channel_handlers.h"
#include "rgpu_client/shim/graph_sides.h"
#include "rgpu_client/shim/host_call.h"
#include "rgpu_client/shim/host_region.h"
#include "rgpu_client/shim/tables/credits.h"
#include "rgpu_client/shim/tables/objects.h"
#include "rgpu_client/shim/thread_state.h"
#include "rgpu_common/native/transport/frame_io.h"

namespace rgpu::shim {

// The thread and the context that issue a command. Every frame header carries both.
struct Issuer {
  ThreadState* thread = nullptr;
  uint32_t context = 0;
};

// The bulk bytes of a posted command, and how the command is accounted.
struct PostOptions {
  const void* bulk = nullptr;
  size_t bulk_bytes = 0;
  bool lent = false;  // the caller leaves the bulk unchanged until it calls TakeBack
  bool more = false;
  Context* work = nullptr;  // set for device work: this context and `stream` become busy
  Stream* stream = nullptr;
  bool soon = false;     // within 50 microseconds will do, also if the channel is idle
  bool counted = false;  // a launch, copy or set: takes a credit of `stream`
  uint64_t credit_bytes = 0;
  uint64_t* seq = nullptr;  // if set, receives the command's sequence number
};

class Channel {
 public:
  Channel(std::unique_ptr<transport::Connection> connection,
          std::unique_ptr<transport::FrameReader> reader, NoticeHandler* handler,
          unsigned session = 0);
  ~Channel() = delete;  // threads may use the channel until the process ends

  void SetLimits(const Credits::Limits& limits) { limits_ = limits; }
  void SetMissing(const std::vector<uint16_t>& opcodes);
  // True if the server does not know the opcode, or knows it with another layout.
  bool Lacks(Opcode opcode) const {
    const auto number = static_cast<size_t>(opcode);
    return number < missing_.size() && missing_[number];
  }

  // Posts a command. Returns the session's sticky error if there is one, and
  // CUDA_ERROR_NOT_SUPPORTED for an opcode that the server lacks. Returns CUDA_ERROR_INVALID_VALUE
  // if the bulk cannot be read (zeros are sent in its place), or if the request is too long for a
  // frame (nothing is sent).
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
    const CUresult status = AfterAppend(append, options.soon);
    return good ? status : CUDA_ERROR_INVALID_VALUE;
  }

  // Sends a command and waits for its reply. The byte fields of `*reply` stay valid until the
  // thread's next call. A command that failed fills `*reply` as well if its reply has a body.
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
    if (Op::kParks && status == CUDA_SUCCESS) NoteCompletion();
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

  // Posts a command whose bytes the worker delivers later (rgpuCopyDtoHLater), or asks for when the
  // stream reaches it (rgpuCopyHtoDPull; `pulled` is then true). `keep` lives with the region.
  template <typename Op>
  CUresult PostDelivered(const Issuer& issuer, const typename Op::Request& request,
                         const PostOptions& options, const HostRegion& region, bool pulled,
                         std::shared_ptr<const void> keep = nullptr) {
    Expected expected;
    expected.region = region;
    expected.keep = std::move(keep);
    expected.pulled = pulled;
    return PostExpecting<Op>(issuer, request, options, std::move(expected));
  }

  // Posts rgpuHostFunction. The worker sends CALLBACK when the stream has come to `call`.
  template <typename Op>
  CUresult PostHostCall(const Issuer& issuer, const typename Op::Request& request,
                        const PostOptions& options, const HostCall& call) {
    Expected expected;
    expected.pulled = true;
    expected.call = call;
    const CUresult status = PostExpecting<Op>(issuer, request, options, std::move(expected));
    // The session may have failed since it was looked at.
    if (const CUresult failed = sticky(); failed != CUDA_SUCCESS) [[unlikely]]
      FailCallbacks(failed);
    return status;
  }

  // Posts the launch of a graph that needs this process while it runs.
  template <typename Op>
  CUresult PostGraph(const Issuer& issuer, const typename Op::Request& request,
                     const PostOptions& options, std::shared_ptr<const GraphSides> sides) {
    Expected expected;
    expected.pulled = true;
    expected.graph = std::make_shared<GraphRun>(std::move(sides));
    return PostExpecting<Op>(issuer, request, options, std::move(expected));
  }

  CUresult sticky() const { return static_cast<CUresult>(sticky_.load(std::memory_order_acquire)); }
  // Makes every later call return `status`. Only the first sticky error takes effect.
  void SetSticky(CUresult status, std::string_view sentence);
  // Ends the session for a reason that only this end knows. Every later call fails, those that wait
  // too, and the worker sees the connection end.
  void End(std::string_view sentence);

  // Before any thread uses the channel: handles frames until one says that the session has ended,
  // or the connection ends, or the time is over.
  void AwaitEnd(int timeout_ms);

  // Ends the loan of memory that was posted as `lent` bulk: afterwards its owner may change it.
  void TakeBack(const void* memory, size_t bytes) { connection_->TakeBack(memory, bytes); }

  // Sends the buffered frames.
  void Flush();
  // Handles the frames that have arrived, without blocking. Does nothing while another thread
  // reads.
  void Poll();
  // Waits until no delivery or pull that touches [address, address + bytes) is outstanding.
  CUresult WaitForDeliveries(uint64_t address, uint64_t bytes);
  // The worker has said that what was posted in a stream (null: in every stream of the context,
  // also those that are gone), up to the command `upto`, is complete. The program may now use that
  // memory for something else, so a worker that still touches it, or runs a host function of it,
  // ends the session. Returns the sticky error, if there is one.
  CUresult Complete(uint32_t context, const Stream* stream, uint64_t upto) {
    return expects_deliveries() ? EndExpected(context, stream, upto) : sticky();
  }
  // A stream is about to go, in the case of a thread's default stream with its thread. Another
  // stream may get its name.
  void StreamGoes(uint64_t wire, uint32_t thread);
  // True if a delivery or pull that touches [address, address + bytes) is outstanding.
  bool ExpectsIn(uint64_t address, uint64_t bytes);
  bool expects_deliveries() const { return expected_count_.load() != 0; }
  // The last command that any thread posted. A wait for all work covers commands up to this one.
  uint64_t last_posted() const { return last_posted_.load(std::memory_order_acquire); }

  // How often any session of the process has learned that device work is complete: by a wait, by a
  // query that succeeded, or because a host function is called. Work that was not ready before the
  // last of these may be complete since, whichever stream, thread or device it belongs to.
  static uint64_t completions() { return completions_.load(); }
  static void NoteCompletion() { completions_.fetch_add(1); }

  // Numbers for the trace and the benchmarks.
  uint64_t commands_sent() const { return commands_sent_.load(); }
  uint64_t writes() const { return writes_.load(); }
  uint64_t bulk_bytes() const { return bulk_bytes_.load(); }
  uint64_t syncs() const { return syncs_.load(); }

  // At process exit: sends the buffered frames within `timeout_ms`, unless another thread holds the
  // locks. From then on a lost connection is not reported.
  void FlushAtExit(int timeout_ms);
  void Shutdown() { connection_->Shutdown(); }
  // In a forked child: gives the connection up without sending anything.
  void Abandon() { connection_->Abandon(); }

 private:
  Sent& SentBy(const Issuer& issuer) const { return issuer.thread->sent[session_]; }
  friend class Pump;
  friend class Flusher;
  friend class LeadHook;
  class Landing;
  static constexpr uint32_t kBatchCommands = 64;
  static constexpr size_t kBatchBytes = 16U << 10;
  static constexpr size_t kDirectBulkBytes = 8U << 10;
  static constexpr uint64_t kIdleNs = 200'000;
  static constexpr const char* kWentOn =
      "the server went on with a copy or host function after it had said that it was complete";

  struct Waiter {
    uint64_t seq = 0;
    bool done = false;
    int32_t status = 0;
    uint64_t watermark = 0;
    ReplySink* sink = nullptr;
    std::vector<uint8_t>* head = nullptr;
    std::condition_variable wake;
  };
  // What the worker will still deliver, or ask for, for a command that was posted earlier.
  struct Expected {
    HostRegion region;
    std::shared_ptr<const void> keep;  // of `region`, if it is ours
    bool pulled = false;               // the worker asks for the bytes (a pull)
    uint64_t moved_bytes = 0;          // of the region, so far
    HostCall call;                     // a host function, if it is one
    std::shared_ptr<GraphRun> graph;   // of the launch of a graph
    uint32_t context = 0;              // where the command was issued
    uint64_t stream = 0;               // its name on the wire, and whose it is
    uint32_t thread = 0;
    bool over = false;  // the worker has said that the command is complete

    // Names are compared: the memory of a stream that is gone may be that of another one now.
    bool IsIn(uint32_t in, const Stream& of) const {
      return context == in && stream == of.wire && thread == of.thread;
    }
    bool Meets(uint64_t address, uint64_t bytes) const {
      return graph != nullptr ? graph->Meets(address, bytes) : region.Meets(address, bytes);
    }
  };

  template <typename Op>
  CUresult PostExpecting(const Issuer& issuer, const typename Op::Request& request,
                         const PostOptions& options, Expected expected) {
    if (const CUresult status = Ready(Op::kOpcode); status != CUDA_SUCCESS) return status;
    if (const CUresult status = WaitForCredit(options); status != CUDA_SUCCESS) return status;
    std::unique_lock append(append_mutex_);
    wire::Writer head = Begin(issuer, Op::kOpcode, 0);
    Put(head, request);
    if (!Fits()) return CUDA_ERROR_INVALID_VALUE;
    Account(issuer, options);
    expected.context = issuer.context;
    expected.stream = options.stream->wire;
    expected.thread = options.stream->thread;
    Expect(std::move(expected));
    const bool good = End(options);
    const CUresult status = AfterAppend(append);
    return good ? status : CUDA_ERROR_INVALID_VALUE;
  }

  // channel_send.cc
  CUresult Ready(Opcode opcode) const;
  wire::Writer Begin(const Issuer& issuer, Opcode opcode, uint8_t flags);
  bool Fits();
  bool End(const PostOptions& options);
  void EndCall(const Issuer& issuer, Waiter& waiter, bool reports);
  void Account(const Issuer& issuer, const PostOptions& options);
  void Expect(Expected expected);
  CUresult AfterAppend(std::unique_lock<std::mutex>& append, bool soon = false);
  CUresult SendDirect(std::unique_lock<std::mutex>& append, const PostOptions& options);
  void WriteBuffer(int idle_timeout_ms);
  CUresult Write(iovec* parts, int count, int idle_timeout_ms);
  CUresult Broken(std::string_view sentence);

  // channel_receive.cc
  CUresult WaitForCredit(const PostOptions& options);
  CUresult WaitForReply(Waiter& waiter);
  template <typename Done>
  void ReadUntil(std::condition_variable& wake, Done done);
  bool ReadWithoutBlocking();
  bool ReadBuffered();
  bool Handle(const wire::FrameHeader& header, wire::ByteView head);
  void HandleReply(const wire::FrameHeader& header, wire::ByteView head);
  bool HandleData(const wire::FrameHeader& header, wire::ByteView head);
  bool HandleDelivery(const wire::FrameHeader& header, wire::ByteView head);
  void Acknowledge(uint64_t seq);
  // True if the reply has arrived, and every delivery that the reply covers has landed. With
  // receive_mutex_.
  bool IsAnswered(const Waiter& waiter) const { return waiter.done && landed_ >= waiter.watermark; }
  void HandOver();
  void WaitForLanding(std::unique_lock<std::mutex>& lock);
  void Lost(std::string_view sentence);
  std::string LostSentence(const char* plain) const;

  // channel_expected.cc
  bool ExpectedMeets(uint64_t address, uint64_t bytes) const;
  bool FindTarget(Expected& expected, const wire::FrameHeader& header, uint64_t offset,
                  HostRegion* region, uint64_t* start);
  CUresult EndExpected(uint32_t context, const Stream* stream, uint64_t upto);
  void Finish(uint64_t seq, uint64_t pulled, bool last);

  // channel_notices.cc
  bool HandleNotice(const wire::FrameHeader& header, wire::ByteView head);
  bool HandleProgress(const wire::FrameHeader& header, wire::Reader& reader);
  bool FindAsked(uint64_t seq, Expected* asked);
  bool Wrong(const char* why);
  bool HandlePull(const wire::FrameHeader& header, wire::Reader& reader);
  bool HandleCallback(const wire::FrameHeader& header, wire::Reader& reader);
  bool HandleGraphCallback(const wire::FrameHeader& header, wire::Reader& reader);
  void FailCallbacks(CUresult status);

  const std::unique_ptr<transport::Connection> connection_;
  const std::unique_ptr<transport::FrameReader> reader_;
  NoticeHandler* const handler_;
  const unsigned session_;  // the number of the session
  Credits::Limits limits_;
  std::vector<bool> missing_;
  std::atomic<int> sticky_{0};
  std::atomic<bool> leaving_{false};
  static inline constinit std::atomic<uint64_t> completions_{0};

  std::mutex turn_mutex_;  // held while waiting for wire_mutex_, so that writers take turns
  std::mutex wire_mutex_;
  transport::FrameBuffer sending_;  // wire_mutex_

  std::mutex append_mutex_;
  transport::FrameBuffer buffer_;               // append_mutex_
  std::atomic<uint64_t> seq_{0};                // written with append_mutex_
  std::atomic<uint64_t> last_posted_{0};        // written with append_mutex_
  std::atomic<uint64_t> acknowledged_{0};       // written by readers
  std::atomic<uint64_t> buffered_since_ns_{0};  // when buffer_ got its first frame; 0: empty
  std::atomic<bool> buffer_full_{false};        // a whole batch: the flusher sends at once
  uint64_t last_append_ns_ = 0;                 // append_mutex_
  bool buffer_is_soon_ = false;  // append_mutex_; all in buffer_ need only be sent soon
  std::atomic<uint64_t> commands_sent_{0};
  std::atomic<uint64_t> writes_{0};
  std::atomic<uint64_t> bulk_bytes_{0};  // both ways
  std::atomic<uint64_t> syncs_{0};       // commands that waited for a reply

  std::mutex receive_mutex_;
  bool leading_ = false;          // a thread uses reader_
  std::vector<Waiter*> waiters_;  // calls that wait for their reply
  uint32_t watchers_ = 0;         // threads that wait for a notice, on progress_
  std::condition_variable progress_;
  std::map<uint64_t, Expected> expected_;  // by sequence number
  std::atomic<uint64_t> expected_count_{0};
  uint64_t landed_ = 0;  // delivery frames whose bytes are in the program's memory
  bool lost_ = false;
  bool landing_ = false;         // the leader is copying bytes into memory of the program
  uint64_t landing_seq_ = 0;     // the command that they belong to
  const char* wrong_ = nullptr;  // why the frame makes no sense; only the leader uses it
  std::condition_variable landing_over_;
};

}  // namespace rgpu::shim
