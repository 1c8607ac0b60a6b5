#include "rgpu_client/shim/paged/fault_handler.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <utility>

#include "rgpu_client/shim/runtime.h"
#include "rgpu_client/shim/service_thread.h"

namespace rgpu::shim {
namespace {

enum Answer : uint32_t { kNone, kServed, kRefused };

// Lies on the stack of the thread that waits in the handler.
struct Fault {
  uint64_t address = 0;
  TouchKind kind = TouchKind::kUnknown;
  std::atomic<uint32_t> answer{kNone};
  Fault* next = nullptr;
};

std::atomic<Fault*> g_faults{nullptr};  // a stack; the pager takes all of it
std::atomic<uint32_t> g_added{0};
std::atomic<uint64_t> g_low{UINT64_MAX};  // bounds of all memory that was ever watched
std::atomic<uint64_t> g_high{0};
std::atomic<pid_t> g_pager{0};

// A pointer, because a forked child needs a new mutex: a thread that exists only in the parent may
// hold the old one.
std::mutex* g_set_up = new std::mutex;

// A program that sets a handler of its own keeps ours as the one before it. Ours is then set once
// more, above it. The program's handler may hand a fault down to the one before: Python's
// faulthandler sets that one again and raises the signal anew. So each layer of ours is a function
// of its own and knows what was there before this layer. With one for all, two handlers would hand
// the fault to each other for ever.
constexpr size_t kMostLayers = 32;
constexpr size_t kLastLayer = kMostLayers - 1;
std::array<struct sigaction, kMostLayers> g_before{};
size_t g_layers = 0;  // g_set_up
// With more handlers than layers the last layer stands above several of them, so a fault may be
// handed down to it again. The thread that has handed one down from there.
std::atomic<pid_t> g_below_last{0};

// The system calls themselves, because a signal handler may use nothing of the library that could
// take a lock.
void Sleep(std::atomic<uint32_t>* word, uint32_t while_it_is) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT_PRIVATE, while_it_is, nullptr,
          nullptr, 0);
}
void Wake(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

TouchKind KindOf(const void* opaque) {
#ifdef __x86_64__
  constexpr long long kWriteBit = 2;  // of the page fault's error code
  const auto* context = static_cast<const ucontext_t*>(opaque);
  return (context->uc_mcontext.gregs[REG_ERR] & kWriteBit) != 0 ? TouchKind::kWrite
                                                                : TouchKind::kRead;
#else
  static_cast<void>(opaque);
  return TouchKind::kUnknown;
#endif
}

// Asks the pager, and sleeps until it has answered.
bool AskPager(uint64_t address, TouchKind kind) {
  Fault fault;
  fault.address = address;
  fault.kind = kind;
  fault.next = g_faults.load();
  while (!g_faults.compare_exchange_weak(fault.next, &fault)) {
  }
  g_added.fetch_add(1);
  Wake(&g_added);
  while (fault.answer.load() == kNone) Sleep(&fault.answer, kNone);
  return fault.answer.load() == kServed;
}

void Call(const struct sigaction& before, int number, siginfo_t* info, void* context) {
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(number, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(number);
  } else {
    // The instruction runs again, and ends the program as it would have done without us.
    signal(number, SIG_DFL);
    if (info->si_code <= 0) raise(number);
  }
}

pid_t ThisThread() { return static_cast<pid_t>(syscall(SYS_gettid)); }

// Hands a fault to the handler below a layer. From the last one the newest handler gets it first;
// if that hands it down to this layer again, it goes on below the layer before.
void HandDown(size_t layer, int number, siginfo_t* info, void* context) {
  if (layer != kLastLayer) return Call(g_before[layer], number, info, context);
  const pid_t thread = ThisThread();
  if (g_below_last.load() == thread) return Call(g_before[layer - 1], number, info, context);
  g_below_last = thread;
  Call(g_before[layer], number, info, context);
  g_below_last = 0;
}

template <size_t kLayer>
void OnFault(int number, siginfo_t* info, void* context) {
  const int error = errno;
  const auto address = reinterpret_cast<uint64_t>(info->si_addr);
  const bool ours = info->si_code == SEGV_ACCERR && address >= g_low.load() &&
                    address < g_high.load() && g_pager.load() != ThisThread();
  const bool served = ours && AskPager(address, KindOf(context));
  errno = error;
  if (!served) HandDown(kLayer, number, info, context);
}

using Handler = void (*)(int, siginfo_t*, void*);

template <size_t... kLayer>
constexpr std::array<Handler, sizeof...(kLayer)> Layers(std::index_sequence<kLayer...>) {
  return {&OnFault<kLayer>...};
}

constexpr std::array<Handler, kMostLayers> kLayers =
    Layers(std::make_index_sequence<kMostLayers>{});

// The layer that a handler is; kMostLayers: it is none of ours.
size_t LayerOf(const struct sigaction& one) {
  if ((one.sa_flags & SA_SIGINFO) == 0) return kMostLayers;
  const auto found = std::ranges::find(kLayers, one.sa_sigaction);
  return static_cast<size_t>(found - kLayers.begin());
}

// The layer above what is there now. A program that switches one handler off and on gets the same
// layer each time. With g_set_up.
size_t LayerAbove(const struct sigaction& now) {
  if (g_layers != 0) {
    const struct sigaction& before = g_before[g_layers - 1];
    if (before.sa_handler == now.sa_handler && before.sa_flags == now.sa_flags) return g_layers - 1;
  }
  return std::min(g_layers, kLastLayer);
}

// At most one fault per thread waits, so the order in which they are answered does not matter.
void RunPager() {
  g_pager = ThisThread();
  for (;;) {
    const uint32_t added = g_added.load();
    Fault* fault = g_faults.exchange(nullptr);
    if (fault == nullptr) Sleep(&g_added, added);
    while (fault != nullptr) {
      // After the answer the fault's memory belongs to its thread again.
      Fault* const next = fault->next;
      bool served = false;
      for (Session* const session : LiveSessions()) {
        served = served || session->paged().Serve(fault->address, fault->kind);
      }
      fault->answer.store(served ? kServed : kRefused);
      Wake(&fault->answer);
      fault = next;
    }
  }
}

// With g_set_up.
bool Install() {
  struct sigaction now{};
  if (sigaction(SIGSEGV, nullptr, &now) != 0) return false;
  if (const size_t ours = LayerOf(now); ours != kMostLayers) {
    // A program that has taken its handlers off has taken our layers above them off, too.
    g_layers = ours + 1;
    return true;
  }
  const size_t layer = LayerAbove(now);
  struct sigaction ours{};
  ours.sa_sigaction = kLayers[layer];
  // On the alternate stack, because the program's handler may be there for overflows of the stack.
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&ours.sa_mask);
  g_before[layer] = now;
  g_layers = std::max(g_layers, layer + 1);
  return sigaction(SIGSEGV, &ours, nullptr) == 0;
}

bool g_started = false;  // g_set_up

}  // namespace

bool FaultHandler::Watch(uint64_t base, uint64_t bytes) {
  const std::lock_guard lock(*g_set_up);
  if (!Install()) return false;
  if (!g_started) g_started = StartServiceThread("rgpu-pager", &RunPager);
  if (base < g_low.load()) g_low = base;
  if (base + bytes > g_high.load()) g_high = base + bytes;
  return g_started;
}

void FaultHandler::Renew() {
  const std::lock_guard lock(*g_set_up);
  if (g_started) Install();
}

void FaultHandler::Forget() {
  g_set_up = new std::mutex;
  g_started = false;
  g_pager = 0;
  g_faults = nullptr;
  g_low = UINT64_MAX;
  g_high = 0;
}

}  // namespace rgpu::shim
