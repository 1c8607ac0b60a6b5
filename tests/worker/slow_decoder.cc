// Preloaded into a worker, it slows down the threads that decode commands: each of them sleeps
// whenever it has released a mutex, for RGPU_TEST_SLOW_US microseconds if that is set. What they
// leave open between two locks stays open for long.
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace {

constexpr size_t kNameBytes = 16;

useconds_t SleepUs() {
  const char* told = std::getenv("RGPU_TEST_SLOW_US");
  return told ? static_cast<useconds_t>(std::strtoul(told, nullptr, 10)) : 10'000;
}

bool Decodes() {
  char name[kNameBytes] = {};
  return pthread_getname_np(pthread_self(), name, sizeof name) == 0 &&
         std::string_view(name) == "rgpu-decode";
}

}  // namespace

extern "C" int pthread_mutex_unlock(pthread_mutex_t* mutex) {
  using Unlock = int (*)(pthread_mutex_t*);
  static const auto unlock = reinterpret_cast<Unlock>(dlsym(RTLD_NEXT, "pthread_mutex_unlock"));
  static const useconds_t sleep_us = SleepUs();
  const int result = unlock(mutex);
  if (Decodes()) usleep(sleep_us);
  return result;
}
