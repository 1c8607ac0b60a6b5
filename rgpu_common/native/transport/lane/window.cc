#include "rgpu_common/native/transport/lane/window.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace rgpu::transport {

Window::Segment Window::NewSegment(uint64_t offset) {
  Segment segment;
  segment.end = offset;
  if (spare_.empty()) {
    segment.chunk = std::make_unique_for_overwrite<uint8_t[]>(kChunkBytes);
  } else {
    segment.chunk = std::move(spare_.back());
    spare_.pop_back();
  }
  segment.data = segment.chunk.get();
  return segment;
}

void Window::Drop(Segment& segment) {
  if (segment.chunk != nullptr && spare_.size() < kSpareChunks) {
    spare_.push_back(std::move(segment.chunk));
  }
}

void Window::CopyTo(std::deque<Segment>& segments, uint64_t offset, const uint8_t* data,
                    size_t bytes) {
  while (bytes > 0) {
    if (segments.empty() || !segments.back().has_room()) segments.push_back(NewSegment(offset));
    Segment& last = segments.back();
    const size_t here = std::min(bytes, kChunkBytes - last.bytes);
    std::memcpy(last.chunk.get() + last.bytes, data, here);
    last.bytes += here;
    last.end += here;
    offset += here;
    data += here;
    bytes -= here;
  }
}

void Window::Keep(const void* data, size_t bytes) {
  CopyTo(segments_, end_, static_cast<const uint8_t*>(data), bytes);
  end_ += bytes;
}

void Window::Lend(const void* data, size_t bytes) {
  const auto* from = static_cast<const uint8_t*>(data);
  end_ += bytes;
  if (!segments_.empty()) {
    Segment& last = segments_.back();
    if (last.chunk == nullptr && last.data + last.bytes == from) {
      last.bytes += bytes;
      last.end = end_;
      return;
    }
  }
  segments_.push_back({end_, bytes, from, nullptr});
}

void Window::TakeBack(const void* from, size_t bytes) {
  const auto* first = static_cast<const uint8_t*>(from);
  std::deque<Segment> kept;
  for (Segment& segment : segments_) {
    const bool lent = segment.chunk == nullptr;
    if (!lent || segment.data + segment.bytes <= first || segment.data >= first + bytes) {
      kept.push_back(std::move(segment));
      continue;
    }
    // Bytes of the segment before begin_ are acknowledged, and need no copy.
    const auto skip = static_cast<size_t>(std::max(begin_, segment.begin()) - segment.begin());
    CopyTo(kept, segment.begin() + skip, segment.data + skip, segment.bytes - skip);
  }
  segments_ = std::move(kept);
}

void Window::Release(uint64_t offset) {
  begin_ = std::max(begin_, std::min(offset, end_));
  while (!segments_.empty() && segments_.front().end <= begin_) {
    Drop(segments_.front());
    segments_.pop_front();
  }
}

int Window::Gather(uint64_t from, uint64_t to, iovec* parts, int limit) const {
  auto segment = std::ranges::upper_bound(segments_, from, {}, &Segment::end);
  int count = 0;
  for (; from < to && count < limit && segment != segments_.end(); ++segment) {
    const auto place = static_cast<size_t>(from - segment->begin());
    const size_t here = std::min<uint64_t>(to - from, segment->bytes - place);
    parts[count++] = {const_cast<uint8_t*>(segment->data) + place, here};
    from += here;
  }
  return count;
}

}  // namespace rgpu::transport
