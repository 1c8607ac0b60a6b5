#include "rgpu_emu/device/shared_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace rgpu::emu {
namespace {

constexpr int kFixedSize = F_SEAL_SHRINK | F_SEAL_GROW;

rgpu::base::UniqueFd Open(const rgpu::base::EmulatedIpc& ipc) {
  if (ipc.fd < 0 || ipc.process < 0) return {};
  if (ipc.process == 0) return rgpu::base::UniqueFd(fcntl(ipc.fd, F_DUPFD_CLOEXEC, 0));
  const std::string path = "/proc/" + std::to_string(ipc.process) + "/fd/" + std::to_string(ipc.fd);
  return rgpu::base::UniqueFd(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
}

}  // namespace

rgpu::base::UniqueFd MakeSharedFile(const char* name, uint64_t bytes) {
  rgpu::base::UniqueFd file(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid() || ftruncate(file.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(file.get(), F_ADD_SEALS, kFixedSize | F_SEAL_SEAL) != 0) {
    return {};
  }
  return file;
}

rgpu::base::UniqueFd OpenSharedFile(const rgpu::base::EmulatedIpc& ipc) {
  rgpu::base::UniqueFd file = Open(ipc);
  struct stat status{};
  if (!file.valid() || fstat(file.get(), &status) != 0) return {};
  const int seals = fcntl(file.get(), F_GET_SEALS);
  const bool fixed = seals >= 0 && (seals & kFixedSize) == kFixedSize;
  const bool same = status.st_size >= 0 && static_cast<uint64_t>(status.st_size) == ipc.file_bytes;
  return fixed && same ? std::move(file) : rgpu::base::UniqueFd();
}

rgpu::base::UniqueFd CopySharedFile(int file, uint64_t* bytes) {
  rgpu::base::UniqueFd own(fcntl(file, F_DUPFD_CLOEXEC, 0));
  struct stat status{};
  if (!own.valid() || fstat(own.get(), &status) != 0) return {};
  const int seals = fcntl(own.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kFixedSize) != kFixedSize || status.st_size < 0) return {};
  *bytes = static_cast<uint64_t>(status.st_size);
  return own;
}

bool ProcessLives(int process) {
  if (process <= 0) return false;
  const int handle = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  if (handle >= 0) {
    pollfd ended{handle, POLLIN, 0};
    const bool lives = poll(&ended, 1, 0) == 0;
    close(handle);
    return lives;
  }
  if (errno == ESRCH) return false;
  // A worker may not open other processes; it may ask for their group.
  return getpgid(process) >= 0 || errno != ESRCH;
}

}  // namespace rgpu::emu
