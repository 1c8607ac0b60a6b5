// Waits by the monotonic clock, for a build whose C library is older than 2.30 and lacks them, as
// that of the wheel (scripts/wheel.py). The C library of the machine nearly always has them; where
// it does not, waits go by the wall clock.
#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

#ifdef __GLIBC__
#if !__GLIBC_PREREQ(2, 30)

namespace {

constexpr long kSecondNs = 1'000'000'000;

// The machine's own function of that name; nullptr if there is none.
template <typename Function>
Function* Machines(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

// The time of the wall clock when `clock` will show `until`.
timespec OnWallClock(clockid_t clock, const timespec& until) {
  timespec now = {}, wall = {};
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &wall);
  const long ns = wall.tv_nsec + (until.tv_nsec - now.tv_nsec);
  const long carry = ns < 0 ? -1 : ns / kSecondNs;
  return {wall.tv_sec + (until.tv_sec - now.tv_sec) + carry, ns - carry * kSecondNs};
}

}  // namespace

// Hidden, so that each of our files has its own and no program finds it.
extern "C" int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                      clockid_t clock, const timespec* until) {
  static const auto wait =
      Machines<int(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*)>(
          "pthread_cond_clockwait");
  if (wait != nullptr) return wait(condition, mutex, clock, until);
  const timespec at = OnWallClock(clock, *until);
  return pthread_cond_timedwait(condition, mutex, &at);
}

extern "C" int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock,
                                       const timespec* until) noexcept {
  static const auto lock =
      Machines<int(pthread_mutex_t*, clockid_t, const timespec*)>("pthread_mutex_clocklock");
  if (lock != nullptr) return lock(mutex, clock, until);
  const timespec at = OnWallClock(clock, *until);
  return pthread_mutex_timedlock(mutex, &at);
}

#endif
#endif
