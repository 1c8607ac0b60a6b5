// Preloaded into a worker, it makes it slow to give memory back to the system: the thread that
// trims a pool has the executor's lock for as long. It makes the file that TRIM_STARTED names when
// that begins.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdlib>

namespace {

constexpr useconds_t kSleepUs = 600'000;

int Slowly(const char* name, int fd, int mode, off_t offset, off_t bytes) {
  using Allocate = int (*)(int, int, off_t, off_t);
  const auto allocate = reinterpret_cast<Allocate>(dlsym(RTLD_NEXT, name));
  constexpr int kPunchHole = 2;
  if ((mode & kPunchHole) != 0) {
    close(open(std::getenv("TRIM_STARTED"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    usleep(kSleepUs);
  }
  return allocate(fd, mode, offset, bytes);
}

}  // namespace

extern "C" int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  return Slowly("fallocate", fd, mode, offset, bytes);
}

extern "C" int fallocate64(int fd, int mode, off_t offset, off_t bytes) {
  return Slowly("fallocate64", fd, mode, offset, bytes);
}
