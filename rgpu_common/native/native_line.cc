// The array seam's line, for Python: messages of a head and a body of any size.
//
// A message is a frame, whose watermark is the size of the body, and after it frames of kind DATA
// with the body in pieces.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/base/text.h"
#include "rgpu_common/native/native_abi.h"
#include "rgpu_common/native/transport/frame_io.h"

namespace {

using rgpu::base::CopyText;
using rgpu::transport::BulkState;
using rgpu::transport::Connection;
using rgpu::transport::FrameReader;
using rgpu::transport::IoResult;
using rgpu::transport::IoState;
using rgpu::transport::ReadState;
using rgpu::wire::FrameHeader;
using rgpu::wire::Kind;

constexpr int kAgain = 0;
constexpr int kDone = 1;
constexpr int kLost = -1;
// The longest silence within a piece, whose bytes a sender has at hand.
constexpr int kPieceSilenceMs = 60'000;
// The most parts of one system call.
constexpr size_t kMostParts = 512;

struct Part {
  const uint8_t* data;
  size_t bytes;
};

// Cuts parts into pieces of at most kPieceBytes.
class Pieces {
 public:
  Pieces(const rgpu_line_part* parts, uint32_t count) : parts_(parts), count_(count) { Skip(); }
  uint64_t total() const {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count_; ++i) sum += parts_[i].bytes;
    return sum;
  }
  bool empty() const { return at_ == count_; }
  Part Next() {
    const size_t bytes = std::min<size_t>(parts_[at_].bytes - offset_, rgpu::wire::kPieceBytes);
    const Part piece{static_cast<const uint8_t*>(parts_[at_].data) + offset_, bytes};
    offset_ += bytes;
    Skip();
    return piece;
  }

 private:
  void Skip() {
    while (at_ < count_ && offset_ == parts_[at_].bytes) {
      ++at_;
      offset_ = 0;
    }
  }

  const rgpu_line_part* parts_;
  const uint32_t count_;
  uint32_t at_ = 0;
  size_t offset_ = 0;
};

struct MessageConnection {
  explicit MessageConnection(std::unique_ptr<Connection> made)
      : connection(std::move(made)), reader(connection.get()) {}

  std::unique_ptr<Connection> connection;
  FrameReader reader;
  // What is being sent.
  std::vector<FrameHeader> headers;
  std::vector<uint8_t> head;
  std::vector<iovec> parts;
  size_t sent = 0;  // so many of them are sent
  // What is left of the body of the message that was read last.
  uint64_t body_left = 0;
  bool broken = false;      // nothing more can be received
  bool unsendable = false;  // nothing more can be sent; what the peer has said can be read
};

iovec ToIovec(const void* data, size_t bytes) { return {const_cast<void*>(data), bytes}; }

int Break(MessageConnection* line) {
  line->broken = true;
  return kLost;
}

int BreakSending(MessageConnection* line) {
  line->unsendable = true;
  return kLost;
}

void Advance(MessageConnection* line, size_t bytes) {
  while (line->sent < line->parts.size()) {
    iovec& part = line->parts[line->sent];
    if (bytes < part.iov_len) {
      part.iov_base = static_cast<uint8_t*>(part.iov_base) + bytes;
      part.iov_len -= bytes;
      return;
    }
    bytes -= part.iov_len;
    ++line->sent;
  }
}

// Reads `bytes`, which are no more than is left of the piece, or with `to` null drops them.
BulkState ReadPart(MessageConnection* line, uint8_t* to, size_t bytes) {
  if (to != nullptr) return line->reader.ReadBulk(to, bytes, kPieceSilenceMs);
  if (bytes == line->reader.bulk_left()) return line->reader.SkipBulk(kPieceSilenceMs);
  std::vector<uint8_t> dropped(bytes);
  return line->reader.ReadBulk(dropped.data(), bytes, kPieceSilenceMs);
}

// Reads the header of the next DATA frame of a body.
int NextPiece(MessageConnection* line, int timeout_ms) {
  FrameHeader header;
  rgpu::wire::ByteView head;
  const ReadState state = line->reader.Next(&header, &head, timeout_ms, true);
  if (state == ReadState::kTimeout || state == ReadState::kWoken) return kAgain;
  const bool good = state == ReadState::kFrame && header.kind == Kind::kData && head.size == 0 &&
                    header.bulk_bytes != 0 && header.bulk_bytes <= line->body_left;
  return good ? kDone : Break(line);
}

}  // namespace

void* rgpu_line_open(const char* uri, int timeout_ms, char* why, size_t why_bytes) {
  rgpu::transport::ConnectOptions options;
  options.timeout_ms = timeout_ms;
  rgpu::transport::ConnectError error;
  auto connection = rgpu::transport::Connect(uri, options, &error);
  if (connection != nullptr) return new MessageConnection(std::move(connection));
  CopyText(error.sentence, why, why_bytes);
  return nullptr;
}

void* rgpu_line_adopt(int fd) {
  auto connection = rgpu::transport::Adopt(fd);
  return connection == nullptr ? nullptr : new MessageConnection(std::move(connection));
}

int rgpu_line_send(void* handle, const rgpu_line_fields* fields, const uint8_t* head,
                   const rgpu_line_part* parts, uint32_t count) {
  auto* line = static_cast<MessageConnection*>(handle);
  if (line->unsendable || !line->parts.empty()) return BreakSending(line);
  if (fields->head_bytes > rgpu::wire::kMaxHeadBytes) return BreakSending(line);
  Pieces pieces(parts, count);
  const uint64_t body = pieces.total();
  line->headers.clear();
  // One more than needed at most; the parts point into it, so it must not move.
  line->headers.reserve(2 + count + body / rgpu::wire::kPieceBytes);
  FrameHeader first;
  first.kind = static_cast<Kind>(fields->kind);
  first.opcode = static_cast<uint16_t>(fields->opcode);
  first.status = fields->status;
  first.payload_bytes = fields->head_bytes;
  first.watermark = body;
  line->headers.push_back(first);
  line->parts.push_back(ToIovec(line->headers.data(), sizeof(FrameHeader)));
  // The head is copied: a message that is sent in several calls outlives Python's bytes.
  line->head.assign(head, head + fields->head_bytes);
  line->parts.push_back(ToIovec(line->head.data(), line->head.size()));
  while (!pieces.empty()) {
    const Part piece = pieces.Next();
    FrameHeader data;
    data.kind = Kind::kData;
    data.payload_bytes = data.bulk_bytes = static_cast<uint32_t>(piece.bytes);
    line->headers.push_back(data);
    line->parts.push_back(ToIovec(&line->headers.back(), sizeof(FrameHeader)));
    line->parts.push_back(ToIovec(piece.data, piece.bytes));
  }
  return kDone;
}

int rgpu_line_push(void* handle, int timeout_ms) {
  auto* line = static_cast<MessageConnection*>(handle);
  if (line->unsendable) return kLost;
  Connection& connection = *line->connection;
  const rgpu::base::Deadline deadline(timeout_ms);
  while (line->sent < line->parts.size() || connection.HasOutput()) {
    IoResult result{IoState::kWouldBlock};
    if (line->sent < line->parts.size()) {
      const size_t left = line->parts.size() - line->sent;
      result = connection.TrySend(&line->parts[line->sent],
                                  static_cast<int>(std::min<size_t>(left, kMostParts)));
    }
    if (result.ok()) {
      Advance(line, result.bytes);
      if (line->sent < line->parts.size() && deadline.passed()) return kAgain;
    } else if (result.state != IoState::kWouldBlock) {
      return BreakSending(line);
    } else if (connection.Wait(rgpu::transport::kWritable, deadline.left_ms()) == 0) {
      return kAgain;
    }
  }
  line->parts.clear();
  line->sent = 0;
  return kDone;
}

int rgpu_line_next(void* handle, int timeout_ms, rgpu_line_fields* fields, uint8_t* head,
                   uint64_t* body_bytes) {
  auto* line = static_cast<MessageConnection*>(handle);
  if (line->broken || line->body_left != 0) return Break(line);
  FrameHeader header;
  rgpu::wire::ByteView view;
  const ReadState state = line->reader.Next(&header, &view, timeout_ms, true);
  if (state == ReadState::kTimeout || state == ReadState::kWoken) return kAgain;
  // The head's buffer has room for the largest head.
  if (state != ReadState::kFrame || header.bulk_bytes != 0 || header.kind == Kind::kData) {
    return Break(line);
  }
  fields->kind = static_cast<uint32_t>(header.kind);
  fields->opcode = header.opcode;
  fields->status = header.status;
  fields->head_bytes = view.size;
  std::memcpy(head, view.data, view.size);
  // Handshakes and notices use the field for something else, and have no body.
  const bool has_body = header.kind == Kind::kCommand || header.kind == Kind::kReply;
  *body_bytes = line->body_left = has_body ? header.watermark : 0;
  return kDone;
}

int rgpu_line_read(void* handle, void* to, uint64_t* bytes, int timeout_ms) {
  auto* line = static_cast<MessageConnection*>(handle);
  const uint64_t wanted = *bytes;
  *bytes = 0;
  if (line->broken || wanted > line->body_left) return Break(line);
  const rgpu::base::Deadline deadline(timeout_ms);
  while (*bytes < wanted) {
    if (deadline.passed()) return kAgain;
    if (line->reader.bulk_left() == 0) {
      const int state = NextPiece(line, deadline.left_ms());
      if (state != kDone) return state;
    }
    const size_t part = std::min<uint64_t>(line->reader.bulk_left(), wanted - *bytes);
    uint8_t* at = to == nullptr ? nullptr : static_cast<uint8_t*>(to) + *bytes;
    if (ReadPart(line, at, part) != BulkState::kDone) return Break(line);
    *bytes += part;
    line->body_left -= part;
  }
  return kDone;
}

uint64_t rgpu_line_left(const void* handle) {
  const auto* line = static_cast<const MessageConnection*>(handle);
  uint64_t left = 0;
  for (size_t i = line->sent; i < line->parts.size(); ++i) left += line->parts[i].iov_len;
  return left;
}

void rgpu_line_wake(void* handle) { static_cast<MessageConnection*>(handle)->connection->Wake(); }

int rgpu_line_gone(void* handle) {
  return static_cast<MessageConnection*>(handle)->connection->Wait(rgpu::transport::kHangup, 0) != 0
             ? 1
             : 0;
}

void rgpu_line_shutdown(void* handle) {
  static_cast<MessageConnection*>(handle)->connection->Shutdown();
}

void rgpu_line_abandon(void* handle) {
  static_cast<MessageConnection*>(handle)->connection->Abandon();
}

void rgpu_line_error(const void* handle, char* why, size_t why_bytes) {
  CopyText(static_cast<const MessageConnection*>(handle)->connection->LostReason(), why, why_bytes);
}

void rgpu_line_kind(const void* handle, char* kind, size_t kind_bytes) {
  CopyText(static_cast<const MessageConnection*>(handle)->connection->kind(), kind, kind_bytes);
}

void rgpu_line_close(void* handle) { delete static_cast<MessageConnection*>(handle); }
