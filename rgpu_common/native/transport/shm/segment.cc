#include "rgpu_common/native/transport/shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

namespace rgpu::transport {
namespace {

constexpr size_t kHeaderBytes = 4096;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr int kNeededSeals = F_SEAL_SHRINK | F_SEAL_GROW;

bool IsRingSize(size_t bytes) {
  return bytes >= kLeastRingBytes && bytes <= kMostRingBytes && (bytes & (bytes - 1)) == 0;
}

}  // namespace

Segment::Segment(Segment&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), ring_bytes_(other.ring_bytes_) {}

Segment::~Segment() {
  if (base_ != nullptr) munmap(base_, kHeaderBytes + 2 * ring_bytes_);
}

RingControl* Segment::control(int ring) const {
  return reinterpret_cast<RingControl*>(base_) + ring;
}

uint8_t* Segment::data(int ring) const {
  return base_ + kHeaderBytes + static_cast<size_t>(ring) * ring_bytes_;
}

bool Segment::MapFd(int fd, size_t ring_bytes, int* error) {
  const size_t bytes = kHeaderBytes + 2 * ring_bytes;
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (at == MAP_FAILED) {
    *error = errno;
    return false;
  }
  // A forked child must not write into its parent's ring: that would end the parent's session.
  madvise(at, bytes, MADV_DONTFORK);
  madvise(at, bytes, MADV_DONTDUMP);
  base_ = static_cast<uint8_t*>(at);
  ring_bytes_ = ring_bytes;
  return true;
}

bool Segment::Make(size_t ring_bytes, Segment* segment, base::UniqueFd* fd, int* error) {
  static_assert(2 * sizeof(RingControl) <= kHeaderBytes);
  base::UniqueFd made(memfd_create("rgpu-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const auto bytes = static_cast<off_t>(kHeaderBytes + 2 * ring_bytes);
  if (!made.valid() || ftruncate(made.get(), bytes) != 0 ||
      fcntl(made.get(), F_ADD_SEALS, kSeals) != 0) {
    *error = errno;
    return false;
  }
  if (!segment->MapFd(made.get(), ring_bytes, error)) return false;
  *fd = std::move(made);
  return true;
}

bool Segment::Map(const base::UniqueFd& fd, Segment* segment, std::string* why) {
  struct stat file{};
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kNeededSeals) != kNeededSeals || fstat(fd.get(), &file) != 0) {
    *why = "the memory that the server sent is not sealed";
    return false;
  }
  const auto bytes = static_cast<size_t>(file.st_size);
  if (file.st_size < 0 || bytes < kHeaderBytes || !IsRingSize((bytes - kHeaderBytes) / 2) ||
      (bytes - kHeaderBytes) % 2 != 0) {
    *why = "the memory that the server sent has a size of " + std::to_string(file.st_size) +
           " bytes, which is not the size of a ring";
    return false;
  }
  int error = 0;
  if (segment->MapFd(fd.get(), (bytes - kHeaderBytes) / 2, &error)) return true;
  *why = "the server's memory cannot be mapped here (" + base::ErrnoText(error) + ")";
  return false;
}

}  // namespace rgpu::transport
