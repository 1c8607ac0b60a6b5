// What the client knows about the pages of one range that host and device use: a table of states
// and the decisions about it. No memory is touched here.
//
//   invalid  the device's bytes are newer, or may be
//   clean    the client has the device's bytes, and the program has not written them since
//   dirty    the program has written to the page, and the device does not have these bytes
//
// A page is settled if no work that may write it was outstanding when its bytes were fetched or
// written. Pages that are not settled may become old at any time, so they become invalid again at
// the end of the next driver call.
#pragma once

#include <cstdint>
#include <vector>

namespace rgpu::shim {

inline constexpr uint64_t kPageBytes = 4096;

enum class PageState : uint8_t { kInvalid, kClean, kDirty };

// Pages [first, first + count).
struct PageRun {
  uint64_t first = 0;
  uint64_t count = 0;

  uint64_t end() const { return first + count; }
  uint64_t offset() const { return first * kPageBytes; }
  uint64_t bytes() const { return count * kPageBytes; }
  bool operator==(const PageRun&) const = default;
};

// What a touch of a page asks for.
struct Touch {
  PageRun fetch;  // empty: the bytes are there
  PageRun write;  // pages that become dirty; empty for a read
};

class PageStates {
 public:
  // All pages begin clean: memory that nobody has written has no bytes to fetch.
  explicit PageStates(uint64_t pages);

  // Decides what a touch of `page` needs. `settled`: no work that may write the pages is
  // outstanding. A program that goes through memory in order gets more and more pages at a time.
  // Pages that are not settled become dirty one by one, so that the bytes beside the program's own
  // are not taken for written.
  Touch OnTouch(uint64_t page, bool write, bool settled);
  void SetFetched(const PageRun& run, bool settled);
  void SetDirty(const PageRun& run, bool settled);
  void SetClean(const PageRun& run);
  // All pages become invalid.
  void Drop();

  // The dirty pages, in order, in as few runs as possible.
  std::vector<PageRun> Dirty() const;
  // The smallest run that holds all pages which are not invalid. Empty: there are none.
  PageRun Valid() const;
  PageState state(uint64_t page) const { return states_[page]; }
  bool unsettled(uint64_t page) const { return unsettled_[page]; }
  bool any_valid() const { return valid_ != 0; }
  bool any_dirty() const { return dirty_ != 0; }
  bool any_unsettled() const { return unsettled_count_ != 0; }
  uint64_t pages() const { return states_.size(); }

 private:
  uint64_t WindowAt(uint64_t page);
  PageRun RunOf(uint64_t page, PageState state, uint64_t most) const;
  void Set(uint64_t page, PageState state, bool settled);

  std::vector<PageState> states_;
  std::vector<bool> unsettled_;
  uint64_t valid_ = 0;
  uint64_t dirty_ = 0;
  uint64_t unsettled_count_ = 0;
  uint64_t low_ = 0;   // pages below are invalid
  uint64_t high_ = 0;  // pages from here on are invalid
  uint64_t next_ = UINT64_MAX;  // the page behind the last window
  uint64_t window_ = 0;
};

}  // namespace rgpu::shim
