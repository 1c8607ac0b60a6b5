#include "rgpu_common/native/confine/rights.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "rgpu_common/native/base/fd.h"

namespace rgpu::confine {
namespace {

// Above the user ids that systems give to people, services and containers.
constexpr uid_t kFirstUid = 0x60000000;
constexpr uid_t kUids = 0x10000000;

std::string ErrnoName(int error) {
  switch (error) {
    case EPERM:
      return "EPERM";
    case EACCES:
      return "EACCES";
    case EINVAL:
      return "EINVAL";
    case ENOSPC:
      return "ENOSPC";
    case ENOSYS:
      return "ENOSYS";
    case EOPNOTSUPP:
      return "EOPNOTSUPP";
    default:
      return base::ErrnoText(error);
  }
}

// A user id that exists in this user namespace. A container's namespace may have few ids; one of
// its highest is then used.
uid_t OwnUid() {
  const auto pid = static_cast<uid_t>(getpid());
  unsigned long inside = 0;
  unsigned long outside = 0;
  unsigned long count = 0;
  unsigned long last = 0;
  unsigned long last_count = 0;
  std::FILE* map = std::fopen("/proc/self/uid_map", "re");
  if (map == nullptr) return kFirstUid + pid % kUids;
  while (std::fscanf(map, "%lu %lu %lu", &inside, &outside, &count) == 3) {
    if (count == 0 || inside + count < last) continue;
    last = inside + count;
    last_count = count;
  }
  std::fclose(map);
  if (last == 0 || last >= kFirstUid + kUids) return kFirstUid + pid % kUids;
  return static_cast<uid_t>(last - 1 - pid % std::max(last_count / 2, 1UL));
}

#ifdef SYS_landlock_create_ruleset
// All rights of Landlock's first version, from executing a file to making a symbolic link.
constexpr uint64_t kAllAccess = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;
constexpr uint64_t kReading = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
// NVIDIA's driver creates files below /dev/shm.
constexpr uint64_t kDeviceAccess =
    LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_REMOVE_FILE;

void AllowBelow(int ruleset, int folder, uint64_t access) {
  landlock_path_beneath_attr rule{};
  rule.allowed_access = access;
  rule.parent_fd = folder;
  syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
}

// Paths that cannot be opened stay without access.
void AllowReading(int ruleset, const std::vector<std::string>& readable) {
  for (const std::string& path : readable) {
    const base::UniqueFd opened(open(path.c_str(), O_PATH | O_CLOEXEC));
    struct stat found{};
    if (!opened.valid() || fstat(opened.get(), &found) != 0) continue;
    // The rights of a folder cannot be given for a file.
    const bool folder = S_ISDIR(found.st_mode);
    AllowBelow(ruleset, opened.get(), folder ? kReading : LANDLOCK_ACCESS_FS_READ_FILE);
  }
}

void AllowDevices(int ruleset) {
  const base::UniqueFd devices(open("/dev", O_PATH | O_CLOEXEC));
  if (devices.valid()) AllowBelow(ruleset, devices.get(), kDeviceAccess);
}

// NVIDIA's driver names its threads by files below /proc/self/task, and cuInit fails with
// CUDA_ERROR_OPERATING_SYSTEM if it cannot. The rule holds for the folder as the kernel has it in
// memory, so the folder stays open: the kernel would otherwise forget it and make another one.
void AllowNamingThreads(int ruleset) {
  static const int threads = open("/proc/self/task", O_PATH | O_CLOEXEC);
  if (threads >= 0) AllowBelow(ruleset, threads, LANDLOCK_ACCESS_FS_WRITE_FILE);
}
#endif

}  // namespace

void Report::Lacks(const char* measure, std::string_view why) {
  if (!text_.empty()) text_ += "; ";
  text_ += measure;
  text_ += ": ";
  text_ += why;
}

void Report::Refused(const char* measure, const char* call, int error) {
  Lacks(measure, ErrnoName(error) + " from " + call);
}

void Limit(__rlimit_resource_t what, rlim_t most, const char* name, Report* report) {
  rlimit limit{};
  getrlimit(what, &limit);
  limit.rlim_max = std::min(limit.rlim_max, most);
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(what, &limit) != 0) {
    report->Refused(kLimits, ("setrlimit of " + std::string(name)).c_str(), errno);
  }
}

bool DropUser(Report* report) {
  if (geteuid() != 0) return false;
  const uid_t uid = OwnUid();
  if (setgroups(0, nullptr) != 0) {
    report->Refused(kOwnUser, "setgroups", errno);
    return false;
  }
  if (setresgid(uid, uid, uid) != 0) {
    report->Refused(kOwnUser, "setresgid", errno);
    return false;
  }
  if (setresuid(uid, uid, uid) != 0) {
    report->Refused(kOwnUser, "setresuid", errno);
    return false;
  }
  return true;
}

void DropCapabilities(Report* report) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capset, &header, none) != 0) report->Refused(kCapabilities, "capset", errno);
}

void ForbidGains(Report* report) {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    report->Refused(kNoNewPrivileges, "prctl", errno);
  }
  if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) report->Refused(kNotInspectable, "prctl", errno);
}

void RestrictFiles(Files files, Report* report, const std::vector<std::string>& readable) {
#ifdef SYS_landlock_create_ruleset
  landlock_ruleset_attr rules{};
  rules.handled_access_fs = files == Files::kNone ? kAllAccess : kAllAccess & ~kReading;
  const long made = syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0);
  if (made < 0) return report->Refused(kLandlock, "landlock_create_ruleset", errno);
  const base::UniqueFd ruleset(static_cast<int>(made));
  if (files == Files::kNone) AllowReading(ruleset.get(), readable);
  if (files == Files::kDevices) {
    AllowDevices(ruleset.get());
    AllowNamingThreads(ruleset.get());
  }
  if (syscall(SYS_landlock_restrict_self, ruleset.get(), 0) != 0) {
    report->Refused(kLandlock, "landlock_restrict_self", errno);
  }
#else
  report->Lacks(kLandlock, "rgpu was built on a system without Landlock");
#endif
}

}  // namespace rgpu::confine
