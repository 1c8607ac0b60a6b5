// Frames over a connection: reads frames from hostile bytes, builds frames, and sends them. A
// sender never blocks in a write while both ends wait for the other to read.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "gen/message_numbers.gen.h"
#include "rgpu_common/native/transport/transport.h"
#include "rgpu_common/native/wire/codec.h"
#include "rgpu_common/native/wire/frame.h"

namespace rgpu::transport {

enum class ReadState : uint8_t {
  kFrame,      // a whole header and head have arrived
  kTimeout,    // the time passed, or (timeout 0) no whole header and head has arrived; call again
  kWoken,      // Wake() was called on the connection
  kClosed,     // the stream ended or broke; final
  kMalformed,  // the bytes are not a frame; final, because no later byte can be trusted
};

enum class BulkState : uint8_t {
  kDone,
  kFault,  // the destination cannot be written; the bytes were dropped, the next frame can be read
  kTimeout,  // no byte came in time; the destination is partly written: end the session
  kClosed,
};

// Reads frames. A head is copied into private memory before it is examined, so the peer cannot
// change it later. One thread at a time may use a reader.
class FrameReader {
 public:
  static constexpr size_t kBufferBytes = 256U << 10;

  explicit FrameReader(Connection* connection, size_t buffer_bytes = kBufferBytes);

  // Reads the next frame's header and head. Unread bulk of the frame before it is skipped. `head`
  // stays valid until the next call of Next. timeout_ms: -1 means no limit, 0 never blocks. If
  // `wakeable`, Wake() ends the call with kWoken.
  ReadState Next(wire::FrameHeader* header, wire::ByteView* head, int timeout_ms,
                 bool wakeable = false);

  // Reads `bytes` (<= bulk_left()) of the current frame's bulk into `to`: copies buffered bytes,
  // and receives the rest straight from the connection. May be called several times for a frame,
  // such as once for each row. idle_timeout_ms is the longest time without a byte (-1: no limit).
  BulkState ReadBulk(void* to, size_t bytes, int idle_timeout_ms);
  // Drops the rest of the bulk.
  BulkState SkipBulk(int idle_timeout_ms);
  // Set it if the destinations of ReadBulk are untrusted addresses, such as the application's in
  // the shim. ReadBulk then tests them first, or lets the kernel copy buffered bytes, which costs
  // about a microsecond. A bad address gives kFault instead of a crash. Off by default.
  void set_guarded(bool guarded) { guarded_ = guarded; }

  uint32_t bulk_left() const { return bulk_left_; }
  // True if Next(..., 0) can make progress with bytes that have been received already. Check it
  // before a Wait, which would not see them.
  bool has_buffered() const { return begin_ != end_ || connection_->HasInput(); }
  // The bytes that were read after the last frame, for another reader that continues the stream.
  wire::ByteView ahead() const {
    return {buffer_.get() + begin_, static_cast<uint32_t>(buffered())};
  }
  Connection* connection() const { return connection_; }

 private:
  // Receives at most `limit` bytes into the buffer. May wait `timeout_ms` for the first of them.
  IoState Refill(size_t limit, int timeout_ms = 0);
  // Takes a frame out of the buffer. kTimeout: more bytes are needed.
  ReadState Parse(wire::FrameHeader* header, wire::ByteView* head);
  bool TakeBuffered(void* to, size_t bytes, bool good);
  BulkState ReceiveSome(uint8_t* to, size_t bytes, int idle_timeout_ms, size_t* got);
  BulkState Drain(size_t bytes, int idle_timeout_ms, BulkState answer);
  size_t buffered() const { return end_ - begin_; }

  Connection* connection_;
  const size_t capacity_;
  std::unique_ptr<uint8_t[]> buffer_;
  std::unique_ptr<uint8_t[]> head_;
  size_t begin_ = 0;
  size_t end_ = 0;
  uint32_t bulk_left_ = 0;
  size_t refill_limit_;
  bool guarded_ = false;
  ReadState final_ = ReadState::kFrame;  // kClosed or kMalformed, once the stream has ended so
};

// Builds frames one after the other in memory that is reused: clear() keeps the capacity.
//
//   Writer head = out.Begin(header);  head.Put(...);  out.End();
//   out.End(bulk_bytes): the caller sends the bulk after this buffer, so it is the last frame
//   out.EndWithBulk(p, n): copies the bulk into the buffer
class FrameBuffer {
 public:
  // Lengths in `header` are ignored; End fills them in.
  wire::Writer Begin(const wire::FrameHeader& header);
  // Ends the frame. False: the head or the bulk exceeds its limit, and the frame has been removed.
  bool End(uint32_t bulk_bytes = 0);
  bool EndWithBulk(const void* bulk, size_t bulk_bytes);
  // True if the head of the frame that Begin started keeps its limit.
  bool fits() const { return head_bytes() <= wire::kMaxHeadBytes; }
  // Removes the frame that Begin started.
  void Cancel();

  const uint8_t* data() const { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  uint32_t frames() const { return frames_; }
  iovec part() { return {bytes_.data(), bytes_.size()}; }
  void reserve(size_t bytes) { bytes_.reserve(bytes); }
  void clear();
  void swap(FrameBuffer& other) noexcept;

 private:
  size_t head_bytes() const { return bytes_.size() - start_ - wire::kHeaderBytes; }

  std::vector<uint8_t> bytes_;
  size_t start_ = 0;
  uint32_t frames_ = 0;
};

enum class SendState : uint8_t {
  kSent,
  kFault,    // a part cannot be read; zeros were sent in its place, so the frames stay whole
  kTimeout,  // the peer accepted no bytes in time; a frame may be cut: end the session
  kClosed,
};

// SendAll calls the hook when bytes arrive while it waits for room. The hook reads without
// blocking. False: another thread is reading now; SendAll calls again later.
class ReadHook {
 public:
  virtual bool OnReadable() = 0;

 protected:
  ~ReadHook() = default;
};

// Sends all parts, and changes `parts` as it proceeds. Parts of at least 4 KiB may be the
// application's memory; smaller parts must be readable. `hook` may be null if another thread always
// reads. idle_timeout_ms is the longest time in which the peer accepts no byte (-1: no limit).
SendState SendAll(Connection& connection, iovec* parts, int count, ReadHook* hook,
                  int idle_timeout_ms);

// Sends one handshake frame. False: its head exceeds the limit, or it was not sent in time.
template <typename Message>
bool SendHandshake(Connection& connection, wire::Handshake opcode, const Message& message,
                   int idle_timeout_ms, int32_t status = 0) {
  wire::FrameHeader header;
  header.kind = wire::Kind::kHandshake;
  header.opcode = static_cast<uint16_t>(opcode);
  header.status = status;
  FrameBuffer frame;
  wire::Writer head = frame.Begin(header);
  Put(head, message);
  if (!frame.End()) return false;
  iovec part = frame.part();
  return SendAll(connection, &part, 1, nullptr, idle_timeout_ms) == SendState::kSent;
}

}  // namespace rgpu::transport
