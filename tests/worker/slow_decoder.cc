// Preloaded into a worker, it slows down the threads that decode commands: each of them sleeps
// whenever it has released a mutex. What they leave open between two locks stays open for long.
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <string_view>

namespace {

constexpr useconds_t kSleepUs = 10'000;
constexpr size_t kNameBytes = 16;

bool Decodes() {
  char name[kNameBytes] = {};
  return pthread_getname_np(pthread_self(), name, sizeof name) == 0 &&
         std::string_view(name) == "rgpu-decode";
}

}  // namespace

extern "C" int pthread_mutex_unlock(pthread_mutex_t* mutex) {
  using Unlock = int (*)(pthread_mutex_t*);
  static const auto unlock = reinterpret_cast<Unlock>(dlsym(RTLD_NEXT, "pthread_mutex_unlock"));
  const int result = unlock(mutex);
  if (Decodes()) usleep(kSleepUs);
  return result;
}
