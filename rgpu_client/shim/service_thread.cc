#include "rgpu_client/shim/service_thread.h"

#include <pthread.h>
#include <signal.h>

namespace rgpu::shim {
namespace {

constexpr size_t kStackBytes = 256U << 10;

__attribute__((tls_model("initial-exec"))) thread_local bool t_service = false;

void* Start(void* opaque) {
  t_service = true;
  reinterpret_cast<void (*)()>(opaque)();
  return nullptr;
}

}  // namespace

bool StartServiceThread(const char* name, void (*run)()) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  // The thread inherits the mask it is made under.
  if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return false;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_t thread{};
  const int error = pthread_create(&thread, &attributes, &Start, reinterpret_cast<void*>(run));
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) return false;
  pthread_setname_np(thread, name);
  return true;
}

bool OnServiceThread() { return t_service; }

}  // namespace rgpu::shim
