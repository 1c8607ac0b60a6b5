// Preloaded into a worker it stands for a defect: from the moment the worker has its ceiling it
// maps memory that nobody charges, until the system gives no more.  It writes how much it has to
// the file that HOARD_REPORT names, after every piece, because the worker may end at any time; a
// newline follows when it gets no more.
#include <fcntl.h>
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

void Report(int report, size_t bytes, const char* end) {
  char text[32];
  const int count = std::snprintf(text, sizeof text, "%020zu%s", bytes, end);
  if (pwrite(report, text, static_cast<size_t>(count), 0) != count) std::abort();
}

void Hoard() {
  rlimit limit{};
  do {
    usleep(1000);
    getrlimit(RLIMIT_DATA, &limit);
  } while (limit.rlim_cur == RLIM_INFINITY);
  const int report = open(std::getenv("HOARD_REPORT"), O_WRONLY | O_CREAT, 0600);
  if (report < 0) std::abort();
  size_t bytes = 0;
  for (size_t size = kPiece; size >= kLeast && bytes < kMost;) {
    void* piece = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (piece == MAP_FAILED) {
      size /= 2;
    } else {
      bytes += size;
      Report(report, bytes, "");
    }
  }
  Report(report, bytes, "\n");
  close(report);
}

struct Start {
  Start() { std::thread(Hoard).detach(); }
} start;

}  // namespace
