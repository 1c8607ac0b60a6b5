#include "rgpu_client/shim/direct_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace rgpu::shim {

bool DirectMemory::Map(const base::UniqueFd& fd, const wire::Band& band) {
  struct stat file{};
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  // Without this seal the server could shrink the file, and the next copy would die of SIGBUS.
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd.get(), &file) != 0) return false;
  const auto bytes = static_cast<uint64_t>(file.st_size);
  if (file.st_size <= 0 || bytes > band.size) return false;
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd.get(), 0);
  if (at == MAP_FAILED) return false;
  // A forked child opens its own session, with device memory of its own.
  madvise(at, bytes, MADV_DONTFORK);
  madvise(at, bytes, MADV_DONTDUMP);
  at_ = static_cast<uint8_t*>(at);
  base_ = band.base;
  bytes_ = bytes;
  file_ = base::UniqueFd(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  return true;
}

bool DirectMemory::Show(uint64_t base, uint64_t bytes) const {
  if (!file_.valid() || At(base, bytes) == nullptr) return false;
  void* const want = reinterpret_cast<void*>(base);
  if (mmap(want, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_.get(),
           static_cast<off_t>(base - base_)) != want) {
    return false;
  }
  madvise(want, bytes, MADV_DONTFORK);
  madvise(want, bytes, MADV_DONTDUMP);
  return true;
}

uint8_t* DirectMemory::At(uint64_t address, uint64_t bytes) const {
  const uint64_t offset = address - base_;
  if (at_ == nullptr || offset >= bytes_ || bytes > bytes_ - offset) return nullptr;
  return at_ + offset;
}

}  // namespace rgpu::shim
