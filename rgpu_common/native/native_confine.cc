#include <fcntl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "rgpu_common/native/confine/filter.h"
#include "rgpu_common/native/confine/rights.h"
#include "rgpu_common/native/native_abi.h"

namespace {

namespace confine = rgpu::confine;

// Allows the system calls of an event loop and of a gRPC channel over Unix sockets. Python loads
// modules when it first needs them, so files may be opened for reading. No process may be started.
bool AllowTunnelCalls() {
  constexpr int kCalls[] = {
      SYS_socketpair,
      SYS_connect,
      SYS_bind,
      SYS_listen,
      SYS_epoll_create1,
      SYS_epoll_ctl,
      SYS_epoll_pwait,
      SYS_pipe2,
      SYS_timerfd_create,
      SYS_timerfd_settime,
      SYS_statx,
      SYS_faccessat,
      SYS_getdents64,
      SYS_readlinkat,
      SYS_getcwd,
      SYS_pread64,
      SYS_fadvise64,
      SYS_fstatfs,
      SYS_pwrite64,
      SYS_sched_getparam,
      SYS_sched_getscheduler,
      SYS_memfd_create,
#if defined(__x86_64__)
      SYS_epoll_wait,
      SYS_epoll_create,
      SYS_stat,
      SYS_lstat,
      SYS_access,
      SYS_readlink,
      SYS_pipe,
#endif
  };
  confine::Filter filter;
  confine::AllowComputing(&filter);
  confine::AllowOpenSockets(&filter);
  for (const int call : kCalls) filter.Allow(call);
  filter.OnlyUnixStreams();
  filter.AllowIfClear(SYS_openat, 2, O_WRONLY | O_RDWR | O_CREAT | O_TRUNC);
  return filter.InstallElseRefuse();
}

}  // namespace

void rgpu_confine_tunnel(char* missing, size_t missing_bytes) {
  confine::Report report;
  confine::Limit(RLIMIT_CORE, 0, "core dumps", &report);
  confine::DropUser(&report);
  confine::DropCapabilities(&report);
  confine::ForbidGains(&report);
  if (!AllowTunnelCalls()) report.Refused(confine::kSystemCalls, "seccomp", errno);
  const std::string& text = report.text();
  if (missing_bytes == 0) return;
  const size_t count = std::min(text.size(), missing_bytes - 1);
  std::copy_n(text.begin(), count, missing);
  missing[count] = '\0';
}
