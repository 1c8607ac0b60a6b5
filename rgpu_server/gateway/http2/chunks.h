// Reads and writes the messages of a tunnel's stream: `Chunk` of tunnel.proto, with gRPC's prefix.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rgpu::gateway::http2 {

inline constexpr size_t kMaxDataBytes = 1U << 20;
// A chunk with all fields, and room for fields of later releases.
inline constexpr size_t kMaxMessageBytes = kMaxDataBytes + 1024;
// The prefix of a gRPC message: one byte for compression, four for the length.
inline constexpr size_t kPrefixBytes = 5;
// The bytes before the data of a sent chunk: the prefix, the field's key and its length.
inline constexpr size_t kChunkHeadBytes = kPrefixBytes + 4;

// Writes the kChunkHeadBytes before `bytes` (at most kMaxDataBytes) of data.
void WriteChunkHead(uint8_t* to, size_t bytes);

// An empty message. It tells the peer that this end is alive.
inline constexpr uint8_t kHeartbeat[kPrefixBytes] = {};
// A message with `end`: no data follows.
inline constexpr uint8_t kEndOfData[kPrefixBytes + 2] = {0, 0, 0, 0, 2, 0x10, 1};

class ChunkSink {
 public:
  // Takes bytes of the connection, which are valid only during the call.
  virtual void Data(const uint8_t* data, size_t bytes) = 0;
  // A message with `end` came.
  virtual void EndOfData() = 0;

 protected:
  ~ChunkSink() = default;
};

class ChunkReader {
 public:
  enum class Fault : uint8_t { kNone, kMalformed, kCompressed, kTooLong };

  explicit ChunkReader(ChunkSink* sink) : sink_(sink) {}

  // Takes the next bytes of the stream, which may be cut anywhere. After a fault it ignores all
  // bytes and returns the fault again.
  Fault Take(const uint8_t* data, size_t bytes);

 private:
  enum class State : uint8_t { kPrefix, kKey, kVarint, kLength, kPayload };

  void TakeByte(uint8_t byte);
  void Prefix();
  void Key();
  void Payload(uint64_t bytes, bool is_data);
  // A field has ended, and perhaps its message.
  void EndOfField();
  // Adds a byte to a varint. Returns true when `number_` is complete.
  bool Number(uint8_t byte);

  ChunkSink* const sink_;
  State state_ = State::kPrefix;
  Fault fault_ = Fault::kNone;
  uint8_t prefix_[kPrefixBytes] = {};
  unsigned int prefix_bytes_ = 0;
  size_t left_ = 0;  // bytes of the message that are still to come
  uint64_t number_ = 0;
  unsigned int shift_ = 0;
  uint64_t field_ = 0;
  size_t payload_left_ = 0;
  bool payload_is_data_ = false;
  bool ended_ = false;
};

}  // namespace rgpu::gateway::http2
