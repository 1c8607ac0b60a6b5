// Records: the units that travel on the links of a Lane. docs/reference/wire-format.md explains
// them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rgpu::transport {

struct RecordHeader {
  uint32_t length = 0;    // bytes of the stream that follow
  uint32_t flags = 0;     // kEndOfStream
  uint64_t offset = 0;    // place of the first of them in the stream
  uint64_t received = 0;  // bytes of the other direction that the sender's reader has taken
};
inline constexpr size_t kRecordHeaderBytes = 24;
static_assert(sizeof(RecordHeader) == kRecordHeaderBytes);

// A flag: the stream ends here in good order, and will not be resumed.
inline constexpr uint32_t kEndOfStream = 1;

inline constexpr uint32_t kMaxRecordBytes = 512U << 10;
// The most bytes that may be sent and not acknowledged. The sender keeps a copy of them; the
// receiver may have to store them, too.
inline constexpr size_t kWindowBytes = 32U << 20;

}  // namespace rgpu::transport
