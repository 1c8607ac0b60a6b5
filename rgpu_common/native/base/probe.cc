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
// From this size on, asking the kernel about mappings costs less than reading a byte of every page.
constexpr size_t kManyBytes = 512U << 10;

uint64_t PageBytes() {
  static const auto bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// Lets the kernel read a byte of every page in [first, end), and with `write` write the same byte
// back. False: a page is not accessible. If the system forbids the call, the answer is true, and a
// bad address faults later, as in any program.
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
  // madvise fails alike for missing memory, for memory of a device, and on kernels before 5.14.
  // TouchPages tells these cases apart.
  return result == 0 || TouchPages(address, end, write);
}

// The argument of PROCMAP_QUERY (<linux/fs.h>, Linux 6.11), which describes one mapping.
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

// Asks the kernel about mappings instead of pages: one system call for each mapping, however large.
// Pages of a mapped file may lie past the end of the file, so they are tested one by one. If
// `*known` is false, this kernel does not support the query.
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
