// Outbox: what many threads have to say on one connection, in order, without any of them blocking
// in a write.  Writes at once, in the caller's thread, while the peer keeps up; a
// producer of bulk, or else a thread of its own, takes over what the peer is too slow for.
//
// Small frames need not wait behind all the bulk that is queued: one that says what it must come
// behind goes in front of the rest, if the connection lets it.  Frames without bulk keep their
// order, and so do those with bulk.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "rgpu_common/native/transport/frame_io.h"

namespace rgpu::transport {

class Outbox {
 public:
  struct Limits {
    // Above this many queued bytes WaitRoom blocks.
    size_t soft_bytes = 8U << 20;
    // Above this many Post fails: the peer sends and does not read.
    size_t hard_bytes = 64U << 20;
    // The peer may take nothing for this long, then the connection is given up.  -1: as long as it
    // lives (a program stopped in a debugger takes nothing); whoever watches it calls Close.
    int idle_timeout_ms = -1;
  };

  explicit Outbox(Connection* connection) : Outbox(connection, Limits{}) {}
  Outbox(Connection* connection, Limits limits);
  ~Outbox();  // joins; what is queued then is dropped: call Drain first
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  static constexpr uint64_t kEverything = UINT64_MAX;

  // Appends whole frames (a FrameBuffer's contents), and sends them unless `hold` (then they go
  // with the next Post or Flush).  `behind`: they come behind bulk with this number and lower ones,
  // but not behind higher ones that are still queued.  False: closed, or over the hard limit (the
  // outbox is closed then).
  bool Post(const FrameBuffer& frames, bool hold = false, uint64_t behind = kEverything);
  // One frame with bulk that is not copied: `keep` owns it until it is sent or dropped.  `number`
  // is higher than that of the one before; 0: everything posted later comes behind it.
  bool PostBulk(const wire::FrameHeader& header, wire::ByteView head, wire::ByteView bulk,
                std::shared_ptr<const void> keep, uint64_t number = 0);
  // One frame with bulk, and blocks until it is handed to the connection: the calling thread itself
  // writes what the peer is too slow for.  For producers of bulk, never for a decoder.  Others'
  // frames may overtake it.
  bool SendBulk(const wire::FrameHeader& header, wire::ByteView head, wire::ByteView bulk);
  void Flush();
  // Blocks until fewer than soft_bytes are queued.  For producers of bulk, never for a decoder.
  bool WaitRoom(int timeout_ms);
  // Blocks until all is handed to the connection.
  bool Drain(int timeout_ms);
  // Stops.  If something is still queued it is dropped and the connection shut down, since a frame
  // may be cut.
  void Close();

  bool closed() const;
  size_t queued_bytes() const;
  // Frames may overtake bulk.
  bool free_order() const { return connection_->free_order(); }

 private:
  struct Item {
    std::vector<uint8_t> bytes;  // whole frames, or the header and head of the one with `bulk`
    wire::ByteView bulk;
    std::shared_ptr<const void> keep;
    uint64_t number = 0;  // nothing with a lower `behind` needs to come behind it; 0: all does
    size_t size() const { return bytes.size() + bulk.size; }
    bool Fill(const wire::FrameHeader& header, wire::ByteView head, wire::ByteView data);
  };
  // All below with the lock.
  bool Append(Item item, bool hold, uint64_t behind = kEverything);
  void Enqueue(Item item, uint64_t behind = kEverything);
  bool Sent(uint64_t target) const { return closed_ || bulk_sent_ >= target; }
  // Writes, in the calling thread, until all bulk that is queued now is sent.
  void WriteQueued(std::unique_lock<std::mutex>& lock);
  void Help(std::unique_lock<std::mutex>& lock, uint64_t target);
  void WriteNow();  // sends what fits
  int Gather(iovec* parts, int limit) const;
  void Consume(size_t bytes);
  void StartWriter();
  void CloseLocked();
  void Run();  // the writer thread; takes the lock itself

  Connection* connection_;
  const Limits limits_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;  // something was sent, or nobody helps any more
  std::condition_variable work_;     // the writer is in charge
  std::deque<Item> queue_;
  size_t queued_ = 0;         // bytes not sent yet
  size_t sent_of_front_ = 0;  // of the first item
  uint64_t bulk_queued_ = 0;  // frames with bulk, ever
  uint64_t bulk_sent_ = 0;    // of them
  bool slow_ = false;         // the connection was full: one thread writes until all is sent
  bool helped_ = false;       // that thread is in SendBulk; else it is the writer
  bool closed_ = false;
  std::thread writer_;
};

}  // namespace rgpu::transport
