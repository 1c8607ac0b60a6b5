#include "rgpu_client/shim/refusals.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <unwind.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <string_view>

#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/runtime.h"
#include "rgpu_client/shim/say.h"
#include "rgpu_client/shim/trace.h"
#include "rgpu_common/native/base/error_log.h"
#include "rgpu_common/native/base/log.h"

namespace rgpu::shim {
namespace {

constexpr uint64_t kCleanUpCommands = 64;
// A program that looks up more missing names than this in a row is listing functions, as
// cuda.bindings does. It may never call one of them, so its failure says nothing about them.
constexpr uint32_t kMostNeeded = 4;
constexpr uint64_t kNever = UINT64_MAX;
constexpr uint32_t kNoCall = UINT32_MAX;

constexpr char kHelp[] =
    "`rgpu help compatibility` says what works, `rgpu trace -- PROGRAM` lists all such calls.";

// Read without a lock while the process ends. Each `_at` is the number of commands that had been
// sent when the refusal happened.
struct Refusals {
  std::atomic<uint64_t> unsupported_at{kNever};
  std::atomic<uint32_t> unsupported{kNoCall};  // CallId
  std::atomic<uint64_t> missing_at{kNever};
  std::atomic<uint32_t> missing_in_a_row{0};
  std::array<char, 96> missing{};
  std::atomic<uint64_t> tables_at{kNever};
  std::atomic<bool> said{false};
};
constinit Refusals g_refusals;
// Guards `missing`. A pointer, because a forked child needs a new mutex.
std::mutex* g_name_mutex = new std::mutex;

uint64_t CommandsSent() {
  uint64_t sent = 0;
  for (const Session* session : LiveSessions()) sent += session->channel().commands_sent();
  return sent;
}

bool Soon(const std::atomic<uint64_t>& at, uint64_t now) {
  const uint64_t then = at.load();
  return then != kNever && now - std::min(then, now) <= kCleanUpCommands;
}

// Prints the sentence for a program that has just failed.
void SayWhatWasRefused(const char* how) {
  const Refusals& r = g_refusals;
  const uint64_t now = CommandsSent();
  if (Soon(r.unsupported_at, now)) {
    Say("this program %s after it called %s, which rgpu does not support "
        "(CUDA_ERROR_NOT_SUPPORTED). %s",
        how, kCallNames[r.unsupported.load()], kHelp);
  } else if (Soon(r.tables_at, now)) {
    Say("this program %s after it asked for private tables of NVIDIA's driver, as a statically "
        "linked CUDA runtime does; rgpu implements the public driver API only and refuses them. "
        "CuPy needs `rgpu run --arrays` and PyTorch `rgpu run --torch`; for other programs "
        "`rgpu help compatibility` says what to use instead.",
        how);
  } else if (Soon(r.missing_at, now) && r.missing_in_a_row.load() <= kMostNeeded) {
    Say("this program %s after it asked for the function %s, which rgpu does not have "
        "(CUDA_ERROR_NOT_FOUND). %s",
        how, r.missing.data(), kHelp);
  }
}

// A walk up the stack to the first code outside this library.
struct Walk {
  const void* own = nullptr;  // where this library is loaded
  std::string_view file;      // of that code
};

_Unwind_Reason_Code Look(_Unwind_Context* frame, void* argument) {
  auto* walk = static_cast<Walk*>(argument);
  Dl_info where{};
  const auto code = _Unwind_GetIP(frame);
  const bool known = code != 0 && dladdr(reinterpret_cast<const void*>(code - 1), &where) != 0;
  if (known && where.dli_fbase == walk->own) return _URC_NO_REASON;
  if (known && where.dli_fname != nullptr) walk->file = where.dli_fname;
  return _URC_END_OF_STACK;
}

// True if NVRTC has made the call that this thread is in. It asks for a private table of drivers
// that are older than it, and compiles without one.
bool CalledByNvrtc() {
  Walk walk;
  Dl_info own{};
  if (dladdr(reinterpret_cast<const void*>(&CalledByNvrtc), &own) == 0) return false;
  walk.own = own.dli_fbase;
  _Unwind_Backtrace(&Look, &walk);
  base::Log(base::Level::kDebug, "%.*s asked for a private table of NVIDIA's driver",
            static_cast<int>(walk.file.size()), walk.file.data());
  return walk.file.substr(walk.file.rfind('/') + 1).starts_with("libnvrtc");
}

void OnExit(int status, void*) {
  if (g_refusals.said.exchange(true)) return;
  const uint64_t asked_at = g_refusals.tables_at.load();
  if (status != 0) {
    SayWhatWasRefused("failed");
  } else if (asked_at != kNever && CurrentSession() != nullptr && CommandsSent() == 0) {
    SayWhatWasRefused("ended without using the device");
  }
}

// Installed with SA_RESETHAND, so the signal raised here ends the process when the handler returns.
void OnAbort(int signal) {
  if (!g_refusals.said.exchange(true)) SayWhatWasRefused("aborted");
  raise(signal);
}

bool RunAtExit() {
#ifdef __GLIBC__
  return on_exit(&OnExit, nullptr) == 0;
#else
  // Only glibc passes the exit status.
  return atexit([] { OnExit(0, nullptr); }) == 0;
#endif
}

// Installs the handlers for the end of the process. Called only after a refusal, so that other
// programs keep their handlers. A handler that the program has set for SIGABRT stays.
void WatchTheEnd(bool abort_too) {
  static const bool at_exit = RunAtExit();
  static_cast<void>(at_exit);
  struct sigaction current{};
  if (!abort_too || sigaction(SIGABRT, nullptr, &current) != 0) return;
  if ((current.sa_flags & SA_SIGINFO) != 0 || current.sa_handler != SIG_DFL) return;
  struct sigaction ours{};
  ours.sa_handler = &OnAbort;
  ours.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGABRT, &ours, nullptr);
}

}  // namespace

void NoteUnsupported(uint32_t index) {
  TraceRefused(index);
  if (index >= kCallCount) return;
  g_refusals.unsupported = index;
  g_refusals.unsupported_at = CommandsSent();
  WatchTheEnd(/*abort_too=*/true);
}

void NoteMissing(const char* name) {
  TraceMissing(name);
  const std::lock_guard lock(*g_name_mutex);
  Refusals& r = g_refusals;
  const uint64_t now = CommandsSent();
  r.missing_in_a_row = r.missing_at.load() == now ? r.missing_in_a_row.load() + 1 : 1;
  r.missing_at = now;
  const size_t bytes = std::min(strlen(name), r.missing.size() - 1);
  std::memcpy(r.missing.data(), name, bytes);
  r.missing[bytes] = '\0';
  WatchTheEnd(/*abort_too=*/false);
}

void NotePrivateTables() {
  if (CalledByNvrtc()) return;
  g_refusals.tables_at = CommandsSent();
  WatchTheEnd(/*abort_too=*/true);
}

void ForgetRefusals() {
  base::RenewErrorLog();
  g_name_mutex = new std::mutex;
  g_refusals.unsupported_at = kNever;
  g_refusals.missing_at = kNever;
  g_refusals.tables_at = kNever;
  g_refusals.said = false;
}

}  // namespace rgpu::shim
