#include "rgpu_server/gateway/http2/chunks.h"

#include <algorithm>

namespace rgpu::gateway::http2 {
namespace {

// Field numbers of Chunk, and protobuf's wire types.
constexpr uint64_t kDataField = 1;
constexpr uint64_t kEndField = 2;
constexpr uint64_t kFormVarint = 0;
constexpr uint64_t kFormFixed64 = 1;
constexpr uint64_t kFormBytes = 2;
constexpr uint64_t kFormFixed32 = 5;
constexpr unsigned int kFormBits = 3;
constexpr unsigned int kMaxShift = 63;

}  // namespace

void WriteChunkHead(uint8_t* to, size_t bytes) {
  // The length always takes three bytes of seven bits each. So data can be read to its place
  // before its length is known.
  const size_t message = bytes + kChunkHeadBytes - kPrefixBytes;
  to[0] = 0;
  for (size_t i = 0; i < 4; ++i) to[1 + i] = static_cast<uint8_t>(message >> (24 - 8 * i));
  to[5] = kDataField << kFormBits | kFormBytes;
  to[6] = static_cast<uint8_t>(bytes | 0x80);
  to[7] = static_cast<uint8_t>(bytes >> 7 | 0x80);
  to[8] = static_cast<uint8_t>(bytes >> 14);
}

ChunkReader::Fault ChunkReader::Take(const uint8_t* data, size_t bytes) {
  while (bytes > 0 && fault_ == Fault::kNone) {
    if (state_ != State::kPayload) {
      TakeByte(*data++);
      --bytes;
      continue;
    }
    const size_t some = std::min(bytes, payload_left_);
    if (payload_is_data_) sink_->Data(data, some);
    data += some;
    bytes -= some;
    left_ -= some;
    payload_left_ -= some;
    if (payload_left_ == 0) EndOfField();
  }
  return fault_;
}

void ChunkReader::TakeByte(uint8_t byte) {
  if (state_ == State::kPrefix) {
    prefix_[prefix_bytes_++] = byte;
    if (prefix_bytes_ == kPrefixBytes) Prefix();
    return;
  }
  --left_;
  if (!Number(byte)) {
    if (left_ == 0) fault_ = Fault::kMalformed;
    return;
  }
  if (state_ == State::kKey) {
    Key();
  } else if (state_ == State::kLength) {
    Payload(number_, field_ == kDataField);
  } else {
    if (field_ == kEndField) ended_ = number_ != 0;
    EndOfField();
  }
}

void ChunkReader::Prefix() {
  prefix_bytes_ = 0;
  left_ = 0;
  for (size_t i = 1; i < kPrefixBytes; ++i) left_ = left_ << 8 | prefix_[i];
  if (prefix_[0] != 0) {
    fault_ = Fault::kCompressed;
  } else if (left_ > kMaxMessageBytes) {
    fault_ = Fault::kTooLong;
  } else {
    EndOfField();
  }
}

bool ChunkReader::Number(uint8_t byte) {
  if (shift_ == 0) number_ = 0;
  number_ |= static_cast<uint64_t>(byte & 0x7F) << shift_;
  if ((byte & 0x80) == 0) {
    shift_ = 0;
    return true;
  }
  shift_ += 7;
  if (shift_ > kMaxShift) fault_ = Fault::kMalformed;
  return false;
}

void ChunkReader::Key() {
  field_ = number_ >> kFormBits;
  const uint64_t form = number_ & ((1U << kFormBits) - 1);
  // Protobuf treats a known field with another wire type as an unknown field.
  if (field_ == kDataField && form != kFormBytes) field_ = UINT64_MAX;
  if (field_ == kEndField && form != kFormVarint) field_ = UINT64_MAX;
  if (field_ == 0) {
    fault_ = Fault::kMalformed;
  } else if (form == kFormVarint || form == kFormBytes) {
    state_ = form == kFormVarint ? State::kVarint : State::kLength;
    if (left_ == 0) fault_ = Fault::kMalformed;
  } else if (form == kFormFixed64 || form == kFormFixed32) {
    Payload(form == kFormFixed64 ? 8 : 4, false);
  } else {
    fault_ = Fault::kMalformed;
  }
}

void ChunkReader::Payload(uint64_t bytes, bool is_data) {
  if (bytes > left_) {
    fault_ = Fault::kMalformed;
    return;
  }
  payload_left_ = static_cast<size_t>(bytes);
  payload_is_data_ = is_data;
  state_ = State::kPayload;
  if (payload_left_ == 0) EndOfField();
}

void ChunkReader::EndOfField() {
  if (left_ > 0) {
    state_ = State::kKey;
    return;
  }
  state_ = State::kPrefix;
  if (ended_) sink_->EndOfData();
  ended_ = false;
}

}  // namespace rgpu::gateway::http2
