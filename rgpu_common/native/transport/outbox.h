// Outbox: sends the frames of many threads on one connection, in order, so that no thread blocks in
// a write. While the peer keeps up, the caller's thread writes at once. When the peer is too slow,
// a thread that produces bulk writes the queue, or else the outbox's own writer thread does.
//
// A small frame need not wait behind all queued bulk. Its sender says behind which bulk it must
// come, and it overtakes the rest if the connection allows that. Frames without bulk keep their
// order among themselves, and so do frames with bulk.
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
    // WaitRoom blocks while more bytes than this are queued.
    size_t soft_bytes = 8U << 20;
    // Post fails above this many bytes: the peer sends commands but does not read.
    size_t hard_bytes = 64U << 20;
    // The connection is given up after the peer has accepted no byte for this long. -1: never,
    // because a program stopped in a debugger accepts nothing; the owner calls Close when the peer
    // ends.
    int idle_timeout_ms = -1;
  };

  explicit Outbox(Connection* connection) : Outbox(connection, Limits{}) {}
  Outbox(Connection* connection, Limits limits);
  ~Outbox();  // joins the writer and drops queued frames: call Drain first
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  static constexpr uint64_t kEverything = UINT64_MAX;

  // Appends whole frames (the contents of a FrameBuffer) and sends them. With `hold`, they are sent
  // with the next Post or Flush. The frames come after queued bulk with a number of at most
  // `behind`, and overtake queued bulk with a higher number. False: the outbox is closed; exceeding
  // the hard limit closes it.
  bool Post(const FrameBuffer& frames, bool hold = false, uint64_t behind = kEverything);
  // Appends one frame with bulk that is not copied: `keep` owns the bulk until it is sent or
  // dropped. `number` must be higher than that of the bulk before. If it is 0, no later frame
  // overtakes this one.
  bool PostBulk(const wire::FrameHeader& header, wire::ByteView head, wire::ByteView bulk,
                std::shared_ptr<const void> keep, uint64_t number = 0);
  // Appends one frame with bulk, and blocks until the connection has taken it. The calling thread
  // itself writes the queue when the peer is slow. For threads that produce bulk, never for the
  // decoder. Frames of other threads may overtake it.
  bool SendBulk(const wire::FrameHeader& header, wire::ByteView head, wire::ByteView bulk);
  void Flush();
  // Blocks until fewer than soft_bytes are queued. For threads that produce bulk, never for the
  // decoder.
  bool WaitRoom(int timeout_ms);
  // Blocks until the connection has taken all queued bytes.
  bool Drain(int timeout_ms);
  // Closes the outbox. Queued frames are dropped; the connection is then shut down, because a frame
  // may have been sent in part.
  void Close();

  bool closed() const;
  size_t queued_bytes() const;
  // True if frames may overtake bulk on this connection.
  bool free_order() const { return connection_->free_order(); }

 private:
  struct Item {
    std::vector<uint8_t> bytes;  // whole frames, or header and head of the frame with `bulk`
    wire::ByteView bulk;
    std::shared_ptr<const void> keep;
    uint64_t number = 0;  // frames with a lower `behind` may overtake this item; 0: none may
    size_t size() const { return bytes.size() + bulk.size; }
    bool Fill(const wire::FrameHeader& header, wire::ByteView head, wire::ByteView data);
  };
  // The functions below need the lock, except Run.
  bool Append(Item item, bool hold, uint64_t behind = kEverything);
  void Enqueue(Item item, uint64_t behind = kEverything);
  bool Sent(uint64_t target) const { return closed_ || bulk_sent_ >= target; }
  // Writes, in the calling thread, until all bulk that is queued at the call is sent.
  void WriteQueued(std::unique_lock<std::mutex>& lock);
  void Help(std::unique_lock<std::mutex>& lock, uint64_t target);
  void WriteNow();  // sends as much of the queue as the connection takes now
  int Gather(iovec* parts, int limit) const;
  void Consume(size_t bytes);
  void StartWriter();
  void CloseLocked();
  void Run();  // the writer thread; takes the lock itself

  Connection* connection_;
  const Limits limits_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;  // bytes were sent, or a thread has left SendBulk
  std::condition_variable work_;     // the writer thread has to write
  std::deque<Item> queue_;
  size_t queued_ = 0;         // bytes that are not sent yet
  size_t sent_of_front_ = 0;  // bytes of the first item that are sent
  uint64_t bulk_queued_ = 0;  // number of frames with bulk ever queued
  uint64_t bulk_sent_ = 0;    // number of them that are sent
  bool slow_ = false;         // the connection was full: one thread writes until all is sent
  bool helped_ = false;       // that thread is in SendBulk; else it is the writer thread
  bool closed_ = false;
  std::thread writer_;
};

}  // namespace rgpu::transport
