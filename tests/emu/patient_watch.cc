// Preloaded into a process with the emulated device, it lets no sleep between two rounds of checks
// of awaited values end by itself: only what is announced ends a wait then.
#include <dlfcn.h>
#include <pthread.h>

#include <cstdint>
#include <ctime>

namespace {

// Longer than the sleeps between two rounds, shorter than all other timed waits.
constexpr int64_t kShortNs = 20'000'000;

int64_t Nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

extern "C" int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                      clockid_t clock, const timespec* end) {
  timespec now{};
  clock_gettime(clock, &now);
  if (Nanoseconds(*end) - Nanoseconds(now) < kShortNs) return pthread_cond_wait(condition, mutex);
  using Wait = int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);
  static const auto wait = reinterpret_cast<Wait>(dlsym(RTLD_NEXT, "pthread_cond_clockwait"));
  return wait(condition, mutex, clock, end);
}
