#include "rgpu_client/shim/interrupts.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <array>
#include <string_view>

namespace rgpu::shim {
namespace {

constexpr uint64_t kLongNs = base::kSecond;
constexpr std::string_view kBefore = "rgpu: this program waits for the GPU, for ";
constexpr std::string_view kAfter =
    " s now: work that it asked for still runs there. It hears of Ctrl-C when that is done. Ctrl-C "
    "again ends it at once\n";

struct sigaction g_before;
std::atomic<pid_t> g_process{0};        // a child of fork is another one, and waits for nothing
std::atomic<uint64_t> g_told_since{0};  // the wait of which the user was told

// Only what a signal handler may call: no printf, no locks.
void Tell(uint64_t seconds) {
  std::array<char, 256> line;
  size_t size = kBefore.copy(line.data(), line.size());
  std::array<char, 20> digits;
  size_t count = 0;
  do {
    digits[count++] = static_cast<char>('0' + seconds % 10);
    seconds /= 10;
  } while (seconds != 0);
  while (count != 0) line[size++] = digits[--count];
  size += kAfter.copy(line.data() + size, line.size() - size);
  [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, line.data(), size);
}

void PassOn(int number, siginfo_t* info, void* context) {
  if ((g_before.sa_flags & SA_SIGINFO) != 0) {
    g_before.sa_sigaction(number, info, context);
  } else {
    g_before.sa_handler(number);
  }
}

// SIGINT is blocked in its own handler: it comes when this one returns, and ends the process.
void EndAtOnce(int number) {
  struct sigaction plain{};
  plain.sa_handler = SIG_DFL;
  sigaction(number, &plain, nullptr);
  kill(getpid(), number);
}

void OnInterrupt(int number, siginfo_t* info, void* context) {
  const int error = errno;
  const uint64_t since = Waits::since_ns();
  const uint64_t now = base::NowNs();
  if (since != 0 && g_process.load() == getpid()) {
    if (g_told_since.load() == since) {
      EndAtOnce(number);
      errno = error;
      return;
    }
    if (now > since && now - since >= kLongNs) {
      g_told_since.store(since);
      Tell((now - since) / base::kSecond);
    }
  }
  PassOn(number, info, context);
  errno = error;
}

}  // namespace

void WatchInterrupts() {
  struct sigaction there{};
  if (sigaction(SIGINT, nullptr, &there) != 0) return;
  const bool is_function = (there.sa_flags & SA_SIGINFO) != 0 ||
                           (there.sa_handler != SIG_DFL && there.sa_handler != SIG_IGN);
  const bool is_ours = (there.sa_flags & SA_SIGINFO) != 0 && there.sa_sigaction == &OnInterrupt;
  if (is_ours) g_process.store(getpid());
  if (!is_function || is_ours || (there.sa_flags & SA_RESETHAND) != 0) return;
  g_before = there;
  g_process.store(getpid());
  struct sigaction ours = there;
  ours.sa_flags |= SA_SIGINFO;
  ours.sa_sigaction = &OnInterrupt;
  sigaction(SIGINT, &ours, nullptr);
}

}  // namespace rgpu::shim
