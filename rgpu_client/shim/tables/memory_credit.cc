#include "rgpu_client/shim/tables/memory_credit.h"

#include <algorithm>
#include <iterator>

#include "rgpu_common/native/base/lengths.h"

namespace rgpu::shim {
namespace {

// Allocations begin at multiples of it.
constexpr uint64_t kAlignment = 512;
constexpr uint64_t kLargestGranule = uint64_t{1} << 30;
// A program that allocates often first gets credit for so many allocations, then twice as much each
// time that it runs out.
constexpr uint64_t kFirstAllocations = 4;
// Larger allocations are not worth a credit: they would hold too much of the lease.
constexpr uint64_t kFewest = 2;
// The worker gives memory to at most so many at the same time, those that it has yet to free
// included.
constexpr uint64_t kMostLive = 4096;

bool IsPowerOfTwo(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

}  // namespace

bool MemoryCredit::Open(const Window& window) {
  const std::lock_guard lock(mutex_);
  if (window_.bytes != 0) return window.base == window_.base && window.bytes == window_.bytes;
  const bool good = IsPowerOfTwo(window.granule) && window.granule >= kAlignment &&
                    window.granule <= kLargestGranule && window.gap % window.granule == 0 &&
                    window.gap <= kLargestGranule && window.base % window.granule == 0 &&
                    window.bytes != 0 && window.bytes % window.granule == 0 &&
                    window.base + window.bytes > window.base;
  if (!good) return false;
  window_ = window;
  cursor_ = window.base;
  free_[window.base] = window.bytes;
  return true;
}

uint64_t MemoryCredit::Rounded(uint64_t bytes) const {
  return base::RoundedUp(bytes, window_.granule);
}

// The addresses that an allocation takes.
MemoryCredit::Span MemoryCredit::SpanOf(uint64_t base, uint64_t bytes) const {
  const uint64_t first = base / window_.granule * window_.granule;
  return {first, Rounded(base - first + bytes) + window_.gap};
}

std::optional<uint64_t> MemoryCredit::Cut(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > credit_ || live_ + pending_.size() >= kMostLive) return std::nullopt;
  const uint64_t size = Rounded(bytes);
  if (size > credit_) return std::nullopt;
  const auto first = TakeSpan(size + window_.gap);
  if (!first) return std::nullopt;
  credit_ -= size;
  ++live_;
  ++uses_;
  return *first + size - base::RoundedUp(bytes, kAlignment);
}

// The first addresses at or behind the cursor that are enough, or else the first at all: what was
// freed is used again late.
std::optional<uint64_t> MemoryCredit::TakeSpan(uint64_t bytes) {
  const auto fits = [bytes](const auto& range) { return range.second >= bytes; };
  auto found = std::find_if(free_.lower_bound(cursor_), free_.end(), fits);
  if (found == free_.end()) found = std::find_if(free_.begin(), free_.end(), fits);
  if (found == free_.end()) return std::nullopt;
  const auto [base, room] = *found;
  free_.erase(found);
  if (room > bytes) free_.emplace(base + bytes, room - bytes);
  cursor_ = base + bytes;
  return base;
}

// A range that is freed is not joined with the one at the cursor, which is used next.
void MemoryCredit::GiveSpan(const Span& span) {
  auto [base, bytes] = span;
  auto next = free_.lower_bound(base);
  if (next != free_.end() && next->first == base + bytes && next->first != cursor_) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == base) {
      before->second += bytes;
      return;
    }
  }
  free_[base] = bytes;
}

void MemoryCredit::Free(uint64_t base, uint64_t bytes, uint64_t seq) {
  const std::lock_guard lock(mutex_);
  ++uses_;
  --live_;
  const Span span = SpanOf(base, bytes);
  if (seq <= freed_) {
    GiveSpan(span);  // the worker was faster than this thread
  } else {
    pending_.emplace(seq, span);
  }
}

void MemoryCredit::Drop(uint64_t base, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  --live_;
  GiveSpan(SpanOf(base, bytes));
}

void MemoryCredit::Granted(uint64_t granted) {
  const std::lock_guard lock(mutex_);
  if (granted <= granted_) return;
  credit_ += granted - granted_;
  granted_ = granted;
}

void MemoryCredit::Freed(uint64_t freed) {
  const std::lock_guard lock(mutex_);
  freed_ = std::max(freed_, freed);
  while (!pending_.empty() && pending_.begin()->first <= freed_) {
    GiveSpan(pending_.begin()->second);
    pending_.erase(pending_.begin());
  }
}

void MemoryCredit::TakeAll() {
  returned_ += credit_;
  credit_ = 0;
}

MemoryCredit::Ask MemoryCredit::AskFor(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  TakeAll();
  // A program that allocates once, or only large pieces, gets no credit.
  if (bytes <= most_ / kFewest) {
    if (asked_) target_ = std::min(most_, std::max(2 * target_, kFirstAllocations * bytes));
    asked_ = true;
  }
  return {returned_, target_};
}

std::optional<uint64_t> MemoryCredit::GiveBack() {
  const std::lock_guard lock(mutex_);
  target_ = 0;
  asked_ = false;
  if (credit_ == 0) return std::nullopt;
  TakeAll();
  return returned_;
}

bool MemoryCredit::active() const {
  const std::lock_guard lock(mutex_);
  return credit_ != 0 || !pending_.empty();
}

uint64_t MemoryCredit::uses() const {
  const std::lock_guard lock(mutex_);
  return uses_;
}

}  // namespace rgpu::shim
