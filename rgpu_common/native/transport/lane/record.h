// Records: what travels on the links of a Lane.  docs/reference/wire-format.md is the prose.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rgpu::transport {

struct RecordHeader {
  uint32_t length = 0;    // bytes of the stream that follow
  uint32_t flags = 0;     // kEndOfStream
  uint64_t offset = 0;    // of the first of them in the stream
  uint64_t received = 0;  // how much of the other direction was taken by its reader
};
inline constexpr size_t kRecordHeaderBytes = 24;
static_assert(sizeof(RecordHeader) == kRecordHeaderBytes);

// The stream ends here in good order: there is nothing to resume.
inline constexpr uint32_t kEndOfStream = 1;

inline constexpr uint32_t kMaxRecordBytes = 512U << 10;
// What may be on its way and not acknowledged: the sender keeps it, the receiver may have to.
inline constexpr size_t kWindowBytes = 32U << 20;

}  // namespace rgpu::transport
