#include "rgpu_client/shim/tables/stream_frees.h"

#include <algorithm>

#include "rgpu_client/shim/tables/objects.h"

namespace rgpu::shim {

void StreamFrees::Add(const Stream& stream, uint64_t seq) {
  const std::lock_guard lock(mutex_);
  uint64_t& last = last_[{stream.context, stream.wire, stream.thread}];
  last = std::max(last, seq);
  count_.store(last_.size());
}

void StreamFrees::Cover(uint32_t context, uint64_t wire, uint32_t thread, uint64_t seq) {
  if (!any()) return;
  const std::lock_guard lock(mutex_);
  const auto found = last_.find({context, wire, thread});
  if (found != last_.end() && found->second <= seq) last_.erase(found);
  count_.store(last_.size());
}

void StreamFrees::CoverContext(uint32_t context, uint64_t seq) {
  if (!any()) return;
  const std::lock_guard lock(mutex_);
  std::erase_if(
      last_, [&](const auto& free) { return free.first.context == context && free.second <= seq; });
  count_.store(last_.size());
}

void StreamFrees::StreamGoes(uint64_t wire, uint32_t thread) {
  if (!any()) return;
  const std::lock_guard lock(mutex_);
  for (auto it = last_.begin(); it != last_.end();) {
    const auto [place, seq] = *it;
    ++it;
    if (place.wire != wire || place.thread != thread) continue;
    last_.erase(place);
    uint64_t& last = last_[{place.context, 0, 0}];
    last = std::max(last, seq);
  }
  count_.store(last_.size());
}

}  // namespace rgpu::shim
