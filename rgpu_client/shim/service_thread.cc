#include "rgpu_client/shim/service_thread.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <memory>

namespace rgpu::shim {
namespace {

struct Start {
  void (*run)(void*);
  void* argument;
};

[[gnu::noinline]] Start Take(void* opaque) {
  return *std::unique_ptr<Start>(static_cast<Start*>(opaque));
}

// It has nothing to destroy (host_functions.cc says why).
void* Main(void* opaque) {
  const Start start = Take(opaque);
  start.run(start.argument);
  // A service thread never returns, but ends with the process. A returning thread frees its
  // libraries' thread data, and exit() may free the same data at that moment (OpenSSL does, without
  // a lock).
  for (;;) pause();
}

void RunPlain(void* run) { reinterpret_cast<void (*)()>(run)(); }

}  // namespace

bool StartServiceThread(const char* name, void (*run)(), size_t stack_bytes) {
  return StartServiceThread(name, &RunPlain, reinterpret_cast<void*>(run), stack_bytes);
}

bool StartServiceThread(const char* name, void (*run)(void*), void* argument, size_t stack_bytes) {
  auto start = std::make_unique<Start>(Start{run, argument});
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  // A host function of the program may touch managed memory whose pages are not here.
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&all, fault);
  // The new thread inherits the signal mask of the thread that creates it.
  if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return false;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, stack_bytes);
  pthread_t thread{};
  const int error = pthread_create(&thread, &attributes, &Main, start.get());
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) return false;
  static_cast<void>(start.release());
  pthread_setname_np(thread, name);
  return true;
}

}  // namespace rgpu::shim
