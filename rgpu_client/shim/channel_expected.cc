// What the worker will still deliver, or ask for, after the commands that want it were posted.
#include <algorithm>

#include "rgpu_client/shim/channel.h"

namespace rgpu::shim {
namespace {

constexpr const char* kTwice =
    "the server sent bytes of a copy twice, out of order or beyond its end";

}  // namespace

using wire::FrameHeader;

// With receive_mutex_.
bool Channel::ExpectedMeets(uint64_t address, uint64_t bytes) const {
  return std::any_of(expected_.begin(), expected_.end(),
                     [&](const auto& entry) { return entry.second.Meets(address, bytes); });
}

bool Channel::ExpectsIn(uint64_t address, uint64_t bytes) {
  if (!expects_deliveries()) return false;
  const std::lock_guard lock(receive_mutex_);
  return ExpectedMeets(address, bytes);
}

// Finds where the bytes of a delivery go: `*start` in `*region`. They count as moved from now on.
// False: the delivery makes no sense.
bool Channel::FindTarget(Expected& expected, const FrameHeader& header, uint64_t offset,
                         HostRegion* region, uint64_t* start) {
  // For a pull, the only valid delivery is an empty last one: it says that the copy failed. The
  // same says that a graph has run.
  const bool end = header.bulk_bytes == 0 && header.flags == wire::kLast;
  if (expected.over && !end) return Wrong(kWentOn);
  if (expected.graph != nullptr && !end) {
    if (header.flags != 0) return false;
    const GraphSides::Side* side = expected.graph->Move(offset, header.bulk_bytes, false);
    if (side == nullptr) return Wrong(kTwice);
    *region = side->region;
    *start = offset - side->offset;
    return true;
  }
  if (expected.pulled) return end;
  const uint64_t total = expected.region.bytes();
  *region = expected.region;
  *start = offset;
  if (offset > total || header.bulk_bytes > total - offset) return false;
  if (header.bulk_bytes > total - expected.moved_bytes) return Wrong(kTwice);
  expected.moved_bytes += header.bulk_bytes;
  return true;
}

void Channel::StreamGoes(uint64_t wire, uint32_t thread) {
  if (!expects_deliveries()) return;
  const std::lock_guard lock(receive_mutex_);
  for (auto& [seq, expected] : expected_) {
    if (expected.stream == wire && expected.thread == thread) expected.stream = 0;
  }
}

CUresult Channel::EndExpected(uint32_t context, const Stream* stream, uint64_t upto) {
  bool landing = false;
  {
    const std::lock_guard lock(receive_mutex_);
    for (auto& [seq, expected] : expected_) {
      if (seq > upto) break;
      const bool covered =
          stream != nullptr ? expected.IsIn(context, *stream) : expected.context == context;
      if (!covered) continue;
      expected.over = true;
      landing = landing || (landing_ && landing_seq_ == seq);
    }
  }
  if (landing) {
    Lost(kWentOn);
    std::unique_lock lock(receive_mutex_);
    WaitForLanding(lock);
  }
  return sticky();
}

// Counts one delivery frame that has landed (`pulled` is 0), or `pulled` bytes sent in answer to a
// pull; a host function counts as a pulled byte. Removes the expectation when the transfer is
// complete.
void Channel::Finish(uint64_t seq, uint64_t pulled, bool last) {
  const std::lock_guard lock(receive_mutex_);
  const auto it = expected_.find(seq);
  if (it == expected_.end()) return;
  Expected& expected = it->second;
  if (pulled == 0) {
    ++landed_;
    for (Waiter* waiter : waiters_) {
      // This waiter's reply arrived before the deliveries that it covers.
      if (waiter->done && waiter->watermark == landed_) waiter->wake.notify_one();
    }
  }
  expected.moved_bytes += pulled;
  // A graph may ask for no byte: its end is a delivery.
  const bool pulled_all = expected.pulled && expected.graph == nullptr &&
                          expected.moved_bytes >= expected.region.bytes();
  if (last || pulled_all) {
    expected_.erase(it);
    expected_count_.fetch_sub(1);
  }
  progress_.notify_all();
}

}  // namespace rgpu::shim
