#include "rgpu_client/shim/trace_page.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "rgpu_common/native/base/clock.h"

namespace rgpu::shim {
namespace {

constexpr char kOthers[] = "(others)";

// The name holds the process id and the time, because a process id may be used again.
int OpenFile(const char* folder) {
  std::array<char, PATH_MAX> path;
  const int length =
      snprintf(path.data(), path.size(), "%s/%d-%llu.trace", folder, static_cast<int>(getpid()),
               static_cast<unsigned long long>(base::NowNs()));
  if (length < 0 || static_cast<size_t>(length) >= path.size()) return -1;
  return open(path.data(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
}

void* Map(const char* folder, size_t bytes) {
  if (*folder == '\0') {
    return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  const int fd = OpenFile(folder);
  if (fd < 0) return MAP_FAILED;
  void* page = MAP_FAILED;
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0) {
    page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  close(fd);
  return page;
}

}  // namespace

uint64_t TracePageBytes(uint32_t calls) {
  const uint64_t rows = uint64_t{calls} + TracePage::kMissing + TracePage::kCompiled;
  return sizeof(TracePage) + rows * sizeof(TraceRow) + TracePage::kFailureBytes;
}

TracePage* MakeTracePage(const char* folder, uint32_t calls) {
  void* mapped = Map(folder, TracePageBytes(calls));
  if (mapped == MAP_FAILED) return nullptr;
  auto* page = static_cast<TracePage*>(mapped);
  page->calls = calls;
  page->missing = TracePage::kMissing;
  page->compiled = TracePage::kCompiled;
  page->pid = static_cast<uint32_t>(getpid());
  std::memcpy(page->magic, TracePage::kMagic, sizeof page->magic);
  return page;
}

void SetRowName(TraceRow* row, std::string_view name) {
  const size_t bytes = std::min<size_t>(name.size(), TraceRow::kNameBytes - 1);
  std::memcpy(row->name, name.data(), bytes);
}

TraceRow* FindRow(TraceRow* rows, uint32_t count, std::string_view name) {
  const std::string_view cut = name.substr(0, TraceRow::kNameBytes - 1);
  for (uint32_t i = 0; i + 1 < count; ++i) {
    if (rows[i].calls.load(std::memory_order_relaxed) == 0) {
      SetRowName(&rows[i], cut);
      return &rows[i];
    }
    if (cut == rows[i].name) return &rows[i];
  }
  TraceRow* last = &rows[count - 1];
  SetRowName(last, kOthers);
  return last;
}

}  // namespace rgpu::shim
