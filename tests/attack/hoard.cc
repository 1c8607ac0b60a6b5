// Preloaded into a worker it stands for a defect: from the moment the worker has its ceiling it
// maps memory that nobody charges, until the system gives no more.  Then it writes how much it got
// to the file that HOARD_REPORT names.
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

namespace {

constexpr size_t kPiece = size_t{16} << 20;
constexpr size_t kLeast = size_t{1} << 20;  // less than the stack of a thread
constexpr size_t kMost = size_t{1} << 40;

void Hoard() {
  rlimit limit{};
  do {
    usleep(1000);
    getrlimit(RLIMIT_DATA, &limit);
  } while (limit.rlim_cur == RLIM_INFINITY);
  size_t bytes = 0;
  for (size_t size = kPiece; size >= kLeast && bytes < kMost;) {
    void* piece = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (piece == MAP_FAILED) {
      size /= 2;
    } else {
      bytes += size;
    }
  }
  std::FILE* report = std::fopen(std::getenv("HOARD_REPORT"), "w");
  if (report == nullptr) std::abort();
  std::fprintf(report, "%zu\n", bytes);
  std::fclose(report);
}

struct Start {
  Start() { std::thread(Hoard).detach(); }
} start;

}  // namespace
