#include "rgpu_common/native/transport/frame_io.h"

namespace rgpu::transport {

wire::Writer FrameBuffer::Begin(const wire::FrameHeader& header) {
  start_ = bytes_.size();
  wire::Writer writer(&bytes_);
  writer.PutRaw(&header, sizeof header);
  return writer;
}

bool FrameBuffer::End(uint32_t bulk_bytes) {
  if (!fits() || bulk_bytes > wire::kMaxBulkBytes) {
    Cancel();
    return false;
  }
  const uint32_t lengths[2] = {static_cast<uint32_t>(head_bytes()) + bulk_bytes, bulk_bytes};
  std::memcpy(bytes_.data() + start_, lengths, sizeof lengths);
  ++frames_;
  return true;
}

bool FrameBuffer::EndWithBulk(const void* bulk, size_t bulk_bytes) {
  if (bulk_bytes > wire::kMaxBulkBytes) {
    Cancel();
    return false;
  }
  if (!End(static_cast<uint32_t>(bulk_bytes))) return false;
  wire::Writer(&bytes_).PutRaw(bulk, bulk_bytes);
  return true;
}

void FrameBuffer::Cancel() { bytes_.resize(start_); }

void FrameBuffer::clear() {
  bytes_.clear();
  start_ = 0;
  frames_ = 0;
}

void FrameBuffer::swap(FrameBuffer& other) noexcept {
  bytes_.swap(other.bytes_);
  std::swap(start_, other.start_);
  std::swap(frames_, other.frames_);
}

}  // namespace rgpu::transport
