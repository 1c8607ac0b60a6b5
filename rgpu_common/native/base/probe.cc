#include "rgpu_common/native/base/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "rgpu_common/native/base/fd.h"

namespace rgpu::base {
namespace {

#ifndef MADV_POPULATE_READ
constexpr int MADV_POPULATE_READ = 22;
constexpr int MADV_POPULATE_WRITE = 23;
#endif
constexpr size_t kAtOnce = 512;
// From here on asking for mappings costs less than looking at pages.
constexpr size_t kManyBytes = 512U << 10;

uint64_t PageBytes() {
  static const auto bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// A byte of every page, by the kernel; what it does not allow is left to fate, as in any program.
// A byte that is to be overwritten is written back as it was.
bool TouchPages(uint64_t first, uint64_t end, bool write) {
  std::array<iovec, kAtOnce> remote;
  std::array<uint8_t, kAtOnce> bytes;
  const uint64_t page = PageBytes();
  for (uint64_t at = first; at < end;) {
    size_t count = 0;
    for (; count < kAtOnce && at < end; ++count, at = at / page * page + page) {
      remote[count] = {reinterpret_cast<void*>(at), 1};
    }
    const iovec local{bytes.data(), count};
    ssize_t done = process_vm_readv(getpid(), &local, 1, remote.data(), count, 0);
    if (done >= 0 && write && done == static_cast<ssize_t>(count)) {
      done = process_vm_writev(getpid(), &local, 1, remote.data(), count, 0);
    }
    if (done < 0 && errno != EFAULT) return true;
    if (done != static_cast<ssize_t>(count)) return false;
  }
  return true;
}

bool PopulatePages(uint64_t address, uint64_t end, bool write) {
  const uint64_t page = PageBytes();
  const uint64_t first_page = address / page * page;
  const uint64_t last = (end - 1) / page * page + page;
  if (last <= first_page) return false;
  int result = 0;
  do {
    result = madvise(reinterpret_cast<void*>(first_page), last - first_page,
                     write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
  } while (result != 0 && (errno == EINTR || errno == EAGAIN));
  // A kernel before 5.14, memory of a device, and memory that is not there all say the same or
  // nearly so: ask again in a way that tells them apart.
  return result == 0 || TouchPages(address, end, write);
}

// What Linux 6.11 answers about a mapping: PROCMAP_QUERY of <linux/fs.h>.
struct Mapping {
  uint64_t size = sizeof(Mapping);
  uint64_t query_flags = 0;  // the mapping that covers query_addr
  uint64_t query_addr = 0;
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t flags = 0;
  uint64_t page_size = 0;
  uint64_t offset = 0;
  uint64_t inode = 0;
  uint32_t dev_major = 0;
  uint32_t dev_minor = 0;
  uint32_t name_size = 0;
  uint32_t build_id_size = 0;
  uint64_t name_addr = 0;
  uint64_t build_id_addr = 0;
};
static_assert(sizeof(Mapping) == 104);
constexpr unsigned long kQueryMapping = _IOWR('f', 17, Mapping);
constexpr uint64_t kReadableMapping = 1;
constexpr uint64_t kWritableMapping = 2;

// Asks for mappings instead of pages: three system calls for memory of any size.  Pages of a file
// may lie behind its end, so they are looked at one by one.  False in `*known`: the kernel does not
// tell.
bool AskMappings(uint64_t address, uint64_t end, bool write, bool* known) {
  const UniqueFd maps(open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  *known = maps.valid();
  while (*known && address < end) {
    Mapping mapping;
    mapping.query_addr = address;
    if (ioctl(maps.get(), kQueryMapping, &mapping) != 0) {
      *known = errno == ENOENT;  // nothing is there
      return false;
    }
    const uint64_t needed = write ? kWritableMapping : kReadableMapping;
    if ((mapping.flags & needed) == 0 || mapping.end <= address) return false;
    const uint64_t until = std::min(end, mapping.end);
    if (mapping.inode != 0 && !PopulatePages(address, until, write)) return false;
    address = until;
  }
  return *known;
}

bool Can(uint64_t address, size_t bytes, bool write) {
  const uint64_t end = address + bytes;
  if (bytes == 0 || end < address) return bytes == 0;
  if (bytes >= kManyBytes) {
    bool known = false;
    const bool there = AskMappings(address, end, write, &known);
    if (known) return there;
  }
  return PopulatePages(address, end, write);
}

}  // namespace

bool CanRead(const void* address, size_t bytes) {
  return Can(reinterpret_cast<uint64_t>(address), bytes, false);
}
bool CanWrite(void* address, size_t bytes) {
  return Can(reinterpret_cast<uint64_t>(address), bytes, true);
}

}  // namespace rgpu::base
