#include "rgpu_emu/device/exec/fault_guard.h"

#include <fenv.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>

namespace rgpu::emu {
namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};

struct Guard {
  sigjmp_buf env;
  Fault fault;
};

struct ThreadGuard {
  Guard* active;
  int chaining;  // nesting depth of earlier handlers that we call
};

// Not initial-exec, which would need room in the static TLS block. Every thread uses this variable
// before it can fault, so it is allocated by then.
thread_local ThreadGuard t_guard;

struct sigaction g_previous[NSIG];
std::mutex g_install_mutex;
std::atomic<bool (*)(uint64_t)> g_may_retry{nullptr};

// Restores the default action: a faulting instruction runs again and ends the process; a signal
// that was sent is sent again.
void EndByDefault(int signal, bool sent) {
  struct sigaction action{};
  action.sa_handler = SIG_DFL;
  sigaction(signal, &action, nullptr);
  if (sent) raise(signal);
}

// Passes a fault outside kernels to the handler that was installed before ours.
void Chain(int signal, siginfo_t* info, void* context) {
  const struct sigaction& previous = g_previous[signal];
  const bool has_function = (previous.sa_flags & SA_SIGINFO) != 0 ||
                            (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN);
  if (!has_function || t_guard.chaining != 0) return EndByDefault(signal, info->si_code <= 0);
  ++t_guard.chaining;
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(signal, info, context);
  } else {
    previous.sa_handler(signal);
  }
  --t_guard.chaining;
}

bool MayRetry(int signal, const siginfo_t* info) {
  const auto may = g_may_retry.load(std::memory_order_acquire);
  return may != nullptr && signal == SIGSEGV && info->si_code == SEGV_ACCERR &&
         may(reinterpret_cast<uint64_t>(info->si_addr));
}

void Handle(int signal, siginfo_t* info, void* context) {
  if (MayRetry(signal, info)) {
    sched_yield();
    return;
  }
  Guard* guard = t_guard.active;
  if (guard == nullptr || info->si_code <= 0)
    return Chain(signal, info, context);  // <= 0: sent by kill
  guard->fault = {signal, reinterpret_cast<uint64_t>(info->si_addr), 0};
  siglongjmp(guard->env, 1);
}

bool IsOurs(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == Handle;
}

// SA_NODEFER: siglongjmp then need not restore the signal mask, so that RunGuarded needs no system
// call.
void Install(int signal) {
  struct sigaction current{};
  sigaction(signal, nullptr, &current);
  if (IsOurs(current)) return;
  g_previous[signal] = current;
  struct sigaction ours{};
  ours.sa_sigaction = Handle;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&ours.sa_mask);
  sigaction(signal, &ours, nullptr);
}

// A kernel that recurses too deeply faults on the stack's guard page, so the handlers need a stack
// of their own.
class AlternateStack {
 public:
  AlternateStack() {
    stack_t current{};
    if (sigaltstack(nullptr, &current) != 0 || (current.ss_flags & SS_DISABLE) == 0) return;
    bytes_ = static_cast<size_t>(std::max<long>(32768, 4 * sysconf(_SC_MINSIGSTKSZ)));
    base_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base_ == MAP_FAILED) return;
    stack_t ours{};
    ours.ss_sp = base_;
    ours.ss_size = bytes_;
    sigaltstack(&ours, nullptr);
  }
  ~AlternateStack() {
    if (base_ == MAP_FAILED) return;
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    sigaltstack(&none, nullptr);
    munmap(base_, bytes_);
  }
  AlternateStack(const AlternateStack&) = delete;
  AlternateStack& operator=(const AlternateStack&) = delete;

 private:
  void* base_ = MAP_FAILED;
  size_t bytes_ = 0;
};

}  // namespace

void InstallFaultHandlers() {
  struct sigaction current{};
  sigaction(SIGSEGV, nullptr, &current);
  if (IsOurs(current)) return;
  std::lock_guard<std::mutex> lock(g_install_mutex);
  for (const int signal : kSignals) Install(signal);
}

void RetryFaultsIn(bool (*may)(uint64_t address)) {
  g_may_retry.store(may, std::memory_order_release);
  InstallFaultHandlers();
}

bool RunGuarded(void (*function)(void*), void* argument, Fault* fault) {
  thread_local AlternateStack stack;
  (void)stack;
  Guard guard;
  guard.fault = {};
  if (sigsetjmp(guard.env, 0) == 0) {
    t_guard.active = &guard;
    function(argument);
    t_guard.active = nullptr;
    return true;
  }
  t_guard.active = nullptr;
  fesetround(FE_TONEAREST);  // the kernel may have been interrupted with another rounding mode
  *fault = guard.fault;
  return false;
}

void LeaveGuarded(int code) {
  Guard* guard = t_guard.active;
  if (guard == nullptr) abort();
  guard->fault = {0, 0, code};
  siglongjmp(guard->env, 1);
}

}  // namespace rgpu::emu
