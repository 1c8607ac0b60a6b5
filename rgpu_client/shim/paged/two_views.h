// Pages that this process maps twice: where the program uses them, with the access that the moment
// allows, and at a second place where the shim always may read and write them.
#pragma once

#include <cstdint>
#include <memory>

#include "rgpu_client/shim/paged/page_states.h"

namespace rgpu::shim {

enum class PageAccess : uint8_t { kNone, kRead, kWrite };

class TwoViews {
 public:
  // Maps zeroed pages at `base`, over a reservation of these addresses, for reading. Both are whole
  // pages. Null: no memory, or too many mappings.
  static std::unique_ptr<TwoViews> Map(uint64_t base, uint64_t bytes);
  // The addresses are a reservation without access again.
  ~TwoViews();
  TwoViews(const TwoViews&) = delete;
  TwoViews& operator=(const TwoViews&) = delete;

  // Changes what the program may do with the pages. False: the process has too many mappings.
  bool Allow(const PageRun& run, PageAccess access) const;
  uint8_t* at(uint64_t offset) const { return own_ + offset; }

 private:
  TwoViews(uint64_t base, uint64_t bytes, uint8_t* own) : base_(base), bytes_(bytes), own_(own) {}

  const uint64_t base_;
  const uint64_t bytes_;
  uint8_t* const own_;
};

}  // namespace rgpu::shim
