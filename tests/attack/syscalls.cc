// What a filter of system calls answers: a line per call, "name errno" (0: allowed).
//
//   syscalls worker|driver|ucx|gateway
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <thread>

#include "rgpu_common/native/confine/filter.h"
#include "rgpu_common/native/confine/sandbox.h"

namespace {

template <typename... Args>
void Try(const char* name, long number, Args... args) {
  const pid_t here = getpid();
  errno = 0;
  const long result = syscall(number, args...);
  if (getpid() != here) _exit(0);  // a child that must not be there
  std::printf("%s %d\n", name, result == -1 ? errno : 0);
}

bool Install(std::string_view profile) {
  using rgpu::confine::Calls;
  if (profile == "worker") return rgpu::confine::InstallSeccomp(Calls::kWorker);
  if (profile == "driver") return rgpu::confine::InstallSeccomp(Calls::kDriver);
  if (profile == "ucx") return rgpu::confine::InstallSeccomp(Calls::kUcx);
  if (profile == "gateway") return rgpu::confine::AllowGatewayCalls();
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 1;
  const int null = open("/dev/null", O_RDONLY);
  if (!Install(argv[1])) return 1;
  rlimit limit{};
  clone_args arguments{};
  arguments.exit_signal = SIGCHLD;
  if (std::string_view(argv[1]) != "ucx") {  // there a child would run on the same stack
    Try("child", SYS_clone, SIGCHLD, 0, 0, 0, 0);
    Try("child with shared memory", SYS_clone, CLONE_VM | CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
  }
  Try("clone3", SYS_clone3, &arguments, sizeof arguments);
  Try("read limit", SYS_prlimit64, 0, RLIMIT_NOFILE, nullptr, &limit);
  Try("set limit", SYS_prlimit64, 0, RLIMIT_NOFILE, &limit, nullptr);
  Try("read the limit of memory", SYS_prlimit64, 0, RLIMIT_DATA, nullptr, &limit);
  Try("set the limit of memory", SYS_prlimit64, 0, RLIMIT_DATA, &limit, nullptr);
  Try("limit of memory of another", SYS_prlimit64, getppid(), RLIMIT_DATA, &limit, nullptr);
  Try("read a limit of another", SYS_prlimit64, getppid(), RLIMIT_NOFILE, nullptr, &limit);
  Try("set a limit of another", SYS_prlimit64, getppid(), RLIMIT_NOFILE, &limit, nullptr);
  Try("setrlimit", SYS_setrlimit, RLIMIT_NOFILE, &limit);
  Try("socket", SYS_socket, AF_INET, SOCK_STREAM, 0);
  Try("datagram socket", SYS_socket, AF_INET, SOCK_DGRAM, 0);
  Try("local datagram socket", SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  Try("local socket", SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr nowhere{AF_UNSPEC, {}};
  Try("connect", SYS_connect, -1, &nowhere, sizeof nowhere);
  Try("bind", SYS_bind, -1, &nowhere, sizeof nowhere);
  Try("listen", SYS_listen, -1, 1);
  Try("accept", SYS_accept, -1, nullptr, nullptr);
  int ends[2];
  Try("pair of sockets", SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, ends);
  Try("read", SYS_read, null, ends, sizeof ends);
  Try("open a file", SYS_openat, AT_FDCWD, "/etc/passwd", O_RDONLY);
  Try("execveat", SYS_execveat, AT_FDCWD, "/bin/true", nullptr, nullptr, 0);
  Try("execve", SYS_execve, "/bin/true", nullptr, nullptr);
  Try("kill", SYS_kill, getppid(), 0);
  Try("tkill", SYS_tkill, getppid(), 0);
  Try("queue a signal", SYS_rt_sigqueueinfo, getppid(), 0, nullptr);
  Try("queue a signal to a thread", SYS_rt_tgsigqueueinfo, getppid(), getppid(), 0, nullptr);
  Try("open a process", SYS_pidfd_open, getppid(), 0);
  Try("signal by a descriptor", SYS_pidfd_send_signal, -1, 0, nullptr, 0);
  Try("trace", SYS_ptrace, 16, getppid(), nullptr, nullptr);  // PTRACE_ATTACH
  Try("read another's memory", SYS_process_vm_readv, getppid(), nullptr, 0, nullptr, 0, 0);
  Try("write another's memory", SYS_process_vm_writev, getppid(), nullptr, 0, nullptr, 0, 0);
  Try("tgkill", SYS_tgkill, getpid(), gettid(), 0);
  Try("tgkill of another", SYS_tgkill, getppid(), getppid(), 0);
  cpu_set_t cpus;
  sched_getaffinity(0, sizeof cpus, &cpus);
  Try("set affinity", SYS_sched_setaffinity, 0, sizeof cpus, &cpus);
  Try("set affinity by its id", SYS_sched_setaffinity, getpid(), sizeof cpus, &cpus);
  Try("set affinity of another", SYS_sched_setaffinity, getppid(), sizeof cpus, &cpus);
  const sched_param normal{};
  Try("set scheduler", SYS_sched_setscheduler, 0, SCHED_OTHER, &normal);
  Try("set scheduler of another", SYS_sched_setscheduler, getppid(), SCHED_OTHER, &normal);
  Try("set scheduling of another", SYS_sched_setparam, getppid(), &normal);
  const int priority = getpriority(PRIO_PROCESS, 0);
  Try("set priority", SYS_setpriority, PRIO_PROCESS, 0, priority);
  Try("set priority of another", SYS_setpriority, PRIO_PROCESS, getppid(), priority);
  Try("set priority of a user", SYS_setpriority, PRIO_USER, 0, priority);
  Try("duplicate", SYS_fcntl, STDOUT_FILENO, F_DUPFD, 0);
  Try("set owner", SYS_fcntl, STDOUT_FILENO, F_SETOWN, getppid());
  const f_owner_ex owner{F_OWNER_PID, getppid()};
  Try("set owner exactly", SYS_fcntl, STDOUT_FILENO, F_SETOWN_EX, &owner);
  std::thread([] { std::puts("thread 0"); }).join();
  std::fflush(stdout);
  // What is searched for leaks at exit is refused as well.
  _exit(0);
}
