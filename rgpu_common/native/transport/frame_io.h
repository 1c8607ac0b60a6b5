// Frames over a connection: reading them out of hostile bytes, building them, sending them without
// ever blocking in a write that nobody reads against.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "rgpu_common/native/transport/transport.h"
#include "rgpu_common/native/wire/codec.h"
#include "rgpu_common/native/wire/frame.h"

namespace rgpu::transport {

enum class ReadState : uint8_t {
  kFrame,      // a whole header and head are here
  kTimeout,    // the time passed, or (timeout 0) nothing whole is here yet; call again
  kWoken,      // Wake() was called on the connection
  kClosed,     // the stream ended or broke; for good
  kMalformed,  // what came is no frame; for good: no later byte can be trusted
};

enum class BulkState : uint8_t {
  kDone,
  kFault,    // the destination cannot be written; the bytes are gone, the stream is in step
  kTimeout,  // no byte came for the time given; the destination is partly written: end the session
  kClosed,
};

// Reads frames.  Bytes are copied out of the connection into memory of its own before they are
// looked at.  One thread at a time.
class FrameReader {
 public:
  static constexpr size_t kBufferBytes = 256U << 10;

  explicit FrameReader(Connection* connection, size_t buffer_bytes = kBufferBytes);

  // The next frame's header and head; bulk of the frame before that nobody read is skipped.  `head`
  // stays valid until the next call of Next.  timeout_ms: -1 no limit, 0 never blocks (a poll).
  // `wakeable`: Wake() ends it with kWoken.
  ReadState Next(wire::FrameHeader* header, wire::ByteView* head, int timeout_ms,
                 bool wakeable = false);

  // Reads `bytes` (<= bulk_left()) of the current frame's bulk into `to`, buffered bytes by copy
  // and the rest straight from the connection.  May be called several times, e.g. once per row.
  // idle_timeout_ms: how long no byte may come (-1: no limit).
  BulkState ReadBulk(void* to, size_t bytes, int idle_timeout_ms);
  // Throws away what is left of the bulk.
  BulkState SkipBulk(int idle_timeout_ms);
  // The destinations of ReadBulk are addresses that somebody else chose (the application, in the
  // shim): they are looked at first, or buffered bytes are copied by the kernel, which costs about
  // a microsecond and turns a bad address into kFault instead of a crash.  Off at first.
  void set_guarded(bool guarded) { guarded_ = guarded; }

  uint32_t bulk_left() const { return bulk_left_; }
  // True if a Next(..., 0) can make progress without a byte from the connection: ask before Wait.
  bool has_buffered() const { return begin_ != end_ || connection_->HasInput(); }
  // What was read behind the last frame; for another reader, which goes on with it.
  wire::ByteView ahead() const {
    return {buffer_.get() + begin_, static_cast<uint32_t>(buffered())};
  }
  Connection* connection() const { return connection_; }

 private:
  // Moves what is there into the buffer, at most `limit` bytes.  timeout_ms: how long it may wait
  // for the first of them.
  IoState Refill(size_t limit, int timeout_ms = 0);
  // kTimeout: more bytes are needed.
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
  ReadState final_ = ReadState::kFrame;  // kClosed or kMalformed once it is so
};

// Builds frames one behind the other in memory that is reused: clear() keeps the capacity.
//
//   Writer head = out.Begin(header);  head.Put(...);  out.End();
//   out.End(bulk_bytes): the bulk follows in the iovec behind this buffer (so it is the last frame)
//   out.EndWithBulk(p, n): the bulk is copied in
class FrameBuffer {
 public:
  // Lengths in `header` are ignored; End fills them in.
  wire::Writer Begin(const wire::FrameHeader& header);
  // False: the head or bulk is above its limit, and the frame was taken out again.
  bool End(uint32_t bulk_bytes = 0);
  bool EndWithBulk(const void* bulk, size_t bulk_bytes);
  // The head of the frame that Begin started is not above its limit.
  bool fits() const { return head_bytes() <= wire::kMaxHeadBytes; }
  // Takes out the frame that Begin started.
  void Cancel();

  const uint8_t* data() const { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  uint32_t frames() const { return frames_; }
  iovec part() { return {bytes_.data(), bytes_.size()}; }
  void reserve(size_t bytes) { bytes_.reserve(bytes); }
  void clear();
  void swap(FrameBuffer& other);

 private:
  size_t head_bytes() const { return bytes_.size() - start_ - wire::kHeaderBytes; }

  std::vector<uint8_t> bytes_;
  size_t start_ = 0;
  uint32_t frames_ = 0;
};

enum class SendState : uint8_t {
  kSent,
  kFault,    // a part could not be read; zeros were sent instead, so that the stream is in step
  kTimeout,  // the peer took nothing for the time given; frames are cut: end the session
  kClosed,
};

// Called by SendAll when bytes can be read while it waits to write.  Reads what it can without
// blocking; false: this thread may not read now (another one does), ask again later.
class ReadHook {
 public:
  virtual bool OnReadable() = 0;

 protected:
  ~ReadHook() = default;
};

// Sends all parts.  Parts of at least 4 KiB may be anybody's memory; smaller ones are this
// process's own.  Advances the parts themselves.  `hook` may be null where another thread always
// reads.  idle_timeout_ms: how long the peer may take nothing (-1: no limit).
SendState SendAll(Connection& connection, iovec* parts, int count, ReadHook* hook,
                  int idle_timeout_ms);

}  // namespace rgpu::transport
