// The frame of wire version 1, which docs/reference/wire-format.md explains. The opcodes of
// notices, control messages and the handshake are generated from cudaspec/messages.
#pragma once

#include <cstdint>
#include <cstring>

#include "gen/message_numbers.gen.h"

namespace rgpu::wire {

// WIRE_MAJOR changes when the header, the kinds or the handshake change.  A new or changed opcode
// changes only that opcode's layout hash.
inline constexpr uint16_t kWireMajor = 1;
inline constexpr uint16_t kWireMinor = 2;
inline constexpr uint32_t kMagic = 0x55504752;  // "RGPU" read as little-endian bytes

inline constexpr uint32_t kHeaderBytes = 40;
inline constexpr uint32_t kMaxHeadBytes = 64U << 10;
inline constexpr uint32_t kMaxBulkBytes = 1U << 20;
// The size of the pieces of a copy. A piece of this size stays in a core's cache on its way between
// the connection and the device.
inline constexpr uint32_t kPieceBytes = 256U << 10;

enum class Kind : uint8_t {
  kCommand = 1,
  kReply = 2,
  kData = 3,
  kDelivery = 4,
  kNotice = 5,
  kControl = 6,
  kHandshake = 7,
};

enum Flags : uint8_t { kWantsReply = 1, kLast = 2, kMore = 4, kResumed = 8 };

struct FrameHeader {
  uint32_t payload_bytes = 0;
  uint32_t bulk_bytes = 0;
  uint16_t opcode = 0;
  Kind kind = Kind::kCommand;
  uint8_t flags = 0;
  int32_t status = 0;
  uint64_t seq = 0;
  uint64_t watermark = 0;
  uint32_t thread = 0;
  uint32_t context = 0;

  uint32_t head_bytes() const { return payload_bytes - bulk_bytes; }
};
static_assert(sizeof(FrameHeader) == kHeaderBytes);

// Reads a header from untrusted bytes.  False: lengths or kind out of range.
inline bool ParseHeader(const uint8_t* bytes, FrameHeader* header) {
  std::memcpy(header, bytes, kHeaderBytes);
  const auto kind = static_cast<uint8_t>(header->kind);
  return kind >= 1 && kind <= 7 && header->bulk_bytes <= kMaxBulkBytes &&
         header->payload_bytes >= header->bulk_bytes && header->head_bytes() <= kMaxHeadBytes;
}

}  // namespace rgpu::wire
