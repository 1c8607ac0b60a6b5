#include "rgpu_common/native/confine/sandbox.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "rgpu_common/native/confine/rights.h"

namespace rgpu::confine {

namespace {

constexpr rlim_t kMaxFiles = 2048;        // each allocation for other processes has up to two
constexpr rlim_t kMaxDriverFiles = 4096;  // NVIDIA's driver holds dozens of files per context
// More than a session may start (docs/explanation/quotas-memory.md).
constexpr rlim_t kMaxThreads = 4096;

// Address space is not limited, because the reserved band alone is larger than any useful limit.
void SetLimits(bool needs_driver_files, Report* report) {
  Limit(RLIMIT_CORE, 0, "core dumps", report);
  Limit(RLIMIT_NOFILE, needs_driver_files ? kMaxDriverFiles : kMaxFiles, "open files", report);
}

// Gives the process its own user, and its own network, IPC and mount namespaces. It keeps only the
// connections that are open.
void LeaveUserAndNamespaces(bool keep_files, Report* report) {
  const int wanted = CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | (keep_files ? 0 : CLONE_NEWNS);
  const bool left = unshare(wanted) == 0;
  // Changes the user before a user namespace exists: within one, a process cannot become another
  // user of the machine. Threads are counted per user, so that limit bounds one worker only if the
  // worker has a user of its own.
  if (DropUser(report)) Limit(RLIMIT_NPROC, kMaxThreads, "threads", report);
  // An unprivileged process may get the other namespaces inside a user namespace of its own.
  if (left || unshare(CLONE_NEWUSER | wanted) == 0) return;
  report->Refused(kNetworkNamespace, "unshare", errno);
}

void FilterCalls(Calls calls, Report* report) {
  if (!InstallSeccomp(calls)) report->Refused(kSystemCalls, "seccomp", errno);
}

}  // namespace

void CloseOtherDescriptors(std::vector<int> keep) {
  std::ranges::sort(keep);
  unsigned int from = 3;
  for (const int fd : keep) {
    if (fd < 3) continue;
    const auto kept = static_cast<unsigned int>(fd);
    if (kept > from) syscall(SYS_close_range, from, kept - 1, 0);
    from = kept + 1;
  }
  syscall(SYS_close_range, from, ~0U, 0);
}

std::string EnterSandbox(const SandboxOptions& options) {
  Report report;
  const bool driver = options.needs_driver_files;
  const bool root = geteuid() == 0;
  SetLimits(driver, &report);
  if (!root) report.Lacks(kOwnUser, "the server does not run as root");
  LeaveUserAndNamespaces(driver, &report);
  DropCapabilities(&report);
  ForbidGains(&report);
  RestrictFiles(driver ? Files::kDevices : Files::kNone, &report, options.readable);
  FilterCalls(driver ? Calls::kDriver : Calls::kWorker, &report);
  return report.text();
}

std::string EnterGatewaySandbox(Gateway gateway) {
  Report report;
  Limit(RLIMIT_CORE, 0, "core dumps", &report);
  DropUser(&report);
  DropCapabilities(&report);
  ForbidGains(&report);
  if (gateway == Gateway::kUcx) {
    FilterCalls(Calls::kUcx, &report);
  } else if (!AllowGatewayCalls()) {
    report.Refused(kSystemCalls, "seccomp", errno);
  }
  return report.text();
}

}  // namespace rgpu::confine
