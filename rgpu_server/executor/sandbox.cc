#include "rgpu_server/executor/sandbox.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "rgpu_common/native/base/fd.h"

namespace rgpu::exec {

namespace {

// Above what systems give to people, services and containers.
constexpr uid_t kFirstUid = 0x60000000;
constexpr rlim_t kMaxFiles = 256;
constexpr rlim_t kMaxDriverFiles = 4096;  // NVIDIA's driver holds dozens per context
constexpr rlim_t kMaxThreads = 8192;

class Report {
 public:
  void Lacks(const char* what, int error) {
    if (!text_.empty()) text_ += "; ";
    text_ += what;
    text_ += ": " + base::ErrnoText(error);
  }
  std::string text() const { return text_; }

 private:
  std::string text_;
};

void Limit(__rlimit_resource_t what, rlim_t value, const char* name, Report* report) {
  rlimit limit{};
  getrlimit(what, &limit);
  limit.rlim_max = std::min(limit.rlim_max, value);
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(what, &limit) != 0) report->Lacks(name, errno);
}

void SetLimits(bool needs_driver_files, Report* report) {
  Limit(RLIMIT_CORE, 0, "core dumps stay on", report);
  Limit(RLIMIT_NOFILE, needs_driver_files ? kMaxDriverFiles : kMaxFiles, "no limit of open files",
        report);
  // Address space is not limited: the band alone is larger than any sensible limit.
}

// An own network, IPC and mount namespace: no network but what is open already.
void LeaveNamespaces(bool keep_files, Report* report) {
  const int wanted = CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | (keep_files ? 0 : CLONE_NEWNS);
  if (unshare(wanted) == 0) return;
  // Without privileges they are to be had inside a user namespace of our own.
  if (unshare(CLONE_NEWUSER | wanted) != 0) report->Lacks("no own network namespace", errno);
}

// An own uid, so that two workers can not signal or inspect each other.
void DropUser(Report* report) {
  if (geteuid() != 0) return;  // the daemon's user is all we may be
  const auto uid = static_cast<uid_t>(kFirstUid + static_cast<uid_t>(getpid()) % 0x10000000U);
  if (setgroups(0, nullptr) != 0) report->Lacks("groups are kept", errno);
  if (setresgid(uid, uid, uid) != 0) report->Lacks("the group is kept", errno);
  if (setresuid(uid, uid, uid) != 0) return report->Lacks("the user is kept", errno);
  // Counted per user, so only where the user is our own.
  Limit(RLIMIT_NPROC, kMaxThreads, "no limit of threads", report);
}

// Those of a user namespace of our own reach far into the kernel as well.
void DropCapabilities(Report* report) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capset, &header, none) != 0) report->Lacks("capabilities are kept", errno);
}

// From here on no file can be opened by its path, or only to be read.
void ForbidFiles(bool may_read, Report* report) {
#ifdef SYS_landlock_create_ruleset
  landlock_ruleset_attr rules{};
  rules.handled_access_fs = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;  // all of the first version
  if (may_read) {
    rules.handled_access_fs &=
        ~uint64_t{LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR};
  }
  const long ruleset = syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0);
  if (ruleset < 0) return report->Lacks("the file system can be read (no Landlock)", errno);
  if (syscall(SYS_landlock_restrict_self, ruleset, 0) != 0) {
    report->Lacks("the file system can be read", errno);
  }
  close(static_cast<int>(ruleset));
#else
  report->Lacks("the file system can be read (built without Landlock)", ENOSYS);
#endif
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
  SetLimits(options.needs_driver_files, &report);
  LeaveNamespaces(options.needs_driver_files, &report);
  DropUser(&report);
  DropCapabilities(&report);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) report.Lacks("privileges can be gained", errno);
  if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) report.Lacks("memory can be inspected", errno);
  if (!options.needs_driver_files) ForbidFiles(false, &report);
  const Calls calls = options.needs_driver_files ? Calls::kDriver : Calls::kWorker;
  if (!InstallSeccomp(calls)) report.Lacks("no system call filter", errno);
  return report.text();
}

std::string EnterGatewaySandbox(bool opens_devices) {
  Report report;
  Limit(RLIMIT_CORE, 0, "core dumps stay on", &report);
  DropCapabilities(&report);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) report.Lacks("privileges can be gained", errno);
  if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) report.Lacks("memory can be inspected", errno);
  if (!opens_devices) ForbidFiles(/*may_read=*/true, &report);
  if (!InstallSeccomp(opens_devices ? Calls::kDriver : Calls::kGateway))
    report.Lacks("no system call filter", errno);
  return report.text();
}

}  // namespace rgpu::exec
