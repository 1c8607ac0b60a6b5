#include "rgpu_server/executor/credit_book.h"

#include <algorithm>
#include <iterator>

#include "rgpu_common/native/base/ranges.h"

namespace rgpu::exec {

namespace {

uint64_t FirstGranule(uint64_t address) {
  return address / CreditBook::kGranule * CreditBook::kGranule;
}

uint64_t BytesOf(uint64_t bytes) { return bytes; }

}  // namespace

uint64_t CreditBook::Return(uint64_t total) {
  if (total <= returned_ || total - returned_ > uncut()) return 0;
  const uint64_t more = total - returned_;
  returned_ = total;
  return more;
}

uint64_t CreditBook::Cut(uint64_t base, uint64_t bytes) {
  const uint64_t offset = base - window_.base;
  if (bytes == 0 || offset >= window_.bytes || bytes > window_.bytes - offset) return 0;
  const uint64_t first = FirstGranule(base);
  const uint64_t size = FirstGranule(base + bytes - 1) + kGranule - first;
  if (size > uncut() || backed_.size() >= kMostBacked) return 0;
  if (base::AnyRangeIn(backed_, first, size, BytesOf)) return 0;
  backed_.emplace(first, size);
  cut_ += size;
  return size;
}

void CreditBook::Drop(uint64_t base) { backed_.erase(FirstGranule(base)); }

void CreditBook::Freed(uint64_t seq) {
  const auto found = std::ranges::find(frees_, seq, &Free::seq);
  if (found == frees_.end()) return;
  found->done = true;
  while (!frees_.empty() && frees_.front().done) {
    freed_ = frees_.front().seq;
    frees_.pop_front();
  }
}

}  // namespace rgpu::exec
