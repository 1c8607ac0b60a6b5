#include "rgpu_client/shim/paged/page_states.h"

#include <algorithm>

namespace rgpu::shim {
namespace {

// The first window, and the largest. A fetch of 32 KiB takes about as long as its round trip.
constexpr uint64_t kFirstWindow = 8;
constexpr uint64_t kLargestWindow = 128;

}  // namespace

PageStates::PageStates(uint64_t pages)
    : states_(pages, PageState::kClean), unsettled_(pages), valid_(pages), high_(pages) {}

// The number of pages that a touch of `page` may take.
uint64_t PageStates::WindowAt(uint64_t page) {
  window_ = page == next_ ? std::min(2 * window_, kLargestWindow) : kFirstWindow;
  return window_;
}

// The pages from `page` on that are in `state`, at most `most`.
PageRun PageStates::RunOf(uint64_t page, PageState state, uint64_t most) const {
  PageRun run{page, 1};
  while (run.count < most && run.end() < pages() && states_[run.end()] == state) ++run.count;
  return run;
}

Touch PageStates::OnTouch(uint64_t page, bool write, bool settled) {
  const PageState state = states_[page];
  Touch touch;
  if (state == PageState::kDirty || (state == PageState::kClean && !write)) return touch;
  const PageRun window = RunOf(page, state, WindowAt(page));
  if (state == PageState::kInvalid) touch.fetch = window;
  const bool one = !settled || (state == PageState::kClean && unsettled_[page]);
  if (write) touch.write = one ? PageRun{page, 1} : window;
  next_ = state == PageState::kInvalid || !one ? window.end() : page + 1;
  return touch;
}

void PageStates::Set(uint64_t page, PageState state, bool settled) {
  const PageState before = states_[page];
  valid_ -= before != PageState::kInvalid ? 1 : 0;
  dirty_ -= before == PageState::kDirty ? 1 : 0;
  unsettled_count_ -= unsettled_[page] ? 1 : 0;
  states_[page] = state;
  unsettled_[page] = state != PageState::kInvalid && !settled;
  valid_ += state != PageState::kInvalid ? 1 : 0;
  dirty_ += state == PageState::kDirty ? 1 : 0;
  unsettled_count_ += unsettled_[page] ? 1 : 0;
  if (state == PageState::kInvalid) return;
  if (low_ >= high_) {
    low_ = page;
    high_ = page + 1;
  }
  low_ = std::min(low_, page);
  high_ = std::max(high_, page + 1);
}

void PageStates::SetFetched(const PageRun& run, bool settled) {
  for (uint64_t page = run.first; page < run.end(); ++page) {
    Set(page, PageState::kClean, settled);
  }
}

// A page stays unsettled if it was so when its bytes were fetched.
void PageStates::SetDirty(const PageRun& run, bool settled) {
  for (uint64_t page = run.first; page < run.end(); ++page) {
    Set(page, PageState::kDirty, settled && !unsettled_[page]);
  }
}

void PageStates::SetClean(const PageRun& run) {
  for (uint64_t page = run.first; page < run.end(); ++page) {
    Set(page, PageState::kClean, !unsettled_[page]);
  }
}

void PageStates::Drop() {
  std::fill(states_.begin() + static_cast<int64_t>(low_),
            states_.begin() + static_cast<int64_t>(high_), PageState::kInvalid);
  if (unsettled_count_ != 0) unsettled_.assign(unsettled_.size(), false);
  valid_ = dirty_ = unsettled_count_ = low_ = high_ = 0;
}

std::vector<PageRun> PageStates::Dirty() const {
  std::vector<PageRun> runs;
  uint64_t left = dirty_;
  for (uint64_t page = low_; page < high_ && left != 0; ++page) {
    if (states_[page] != PageState::kDirty) continue;
    --left;
    if (!runs.empty() && runs.back().end() == page) {
      ++runs.back().count;
    } else {
      runs.push_back({page, 1});
    }
  }
  return runs;
}

PageRun PageStates::Valid() const {
  if (valid_ == 0) return {};
  return {low_, high_ - low_};
}

}  // namespace rgpu::shim
