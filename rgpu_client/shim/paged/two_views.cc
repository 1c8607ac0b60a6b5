#include "rgpu_client/shim/paged/two_views.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rgpu_client/shim/bands.h"

namespace rgpu::shim {

std::unique_ptr<TwoViews> TwoViews::Map(uint64_t base, uint64_t bytes) {
  void* const own = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (own == MAP_FAILED) return nullptr;
  void* const want = reinterpret_cast<void*>(base);
  // An old size of 0 maps the same shared pages a second time. The system call itself, because UCX
  // replaces mremap by a function that drops the fifth argument.
  constexpr int kMove = MREMAP_MAYMOVE | MREMAP_FIXED;
  if (static_cast<uint64_t>(syscall(SYS_mremap, own, size_t{0}, bytes, kMove, want)) != base) {
    munmap(own, bytes);
    return nullptr;
  }
  std::unique_ptr<TwoViews> views(new TwoViews(base, bytes, static_cast<uint8_t*>(own)));
  // A forked child opens its own session, with device memory of its own.
  for (void* view : {own, want}) {
    madvise(view, bytes, MADV_DONTFORK);
    madvise(view, bytes, MADV_DONTDUMP);
  }
  if (!views->Allow({0, bytes / kPageBytes}, PageAccess::kRead)) return nullptr;
  return views;
}

TwoViews::~TwoViews() {
  ReserveAgain({base_, bytes_});
  munmap(own_, bytes_);
}

bool TwoViews::Allow(const PageRun& run, PageAccess access) const {
  int protection = PROT_NONE;
  if (access == PageAccess::kRead) protection = PROT_READ;
  if (access == PageAccess::kWrite) protection = PROT_READ | PROT_WRITE;
  return mprotect(reinterpret_cast<void*>(base_ + run.offset()), run.bytes(), protection) == 0;
}

}  // namespace rgpu::shim
