#include "rgpu_common/native/confine/filter.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace rgpu::confine {
namespace {

#if defined(__x86_64__)
constexpr unsigned int kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr unsigned int kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "rgpu runs on x86-64 and aarch64"
#endif

// From this number on, calls belong to the x32 ABI. They would get around every rule.
constexpr unsigned int kFirstX32 = 0x40000000;
constexpr unsigned int kNewestKnown = 446;  // landlock_restrict_self
constexpr unsigned int kUnknown = SECCOMP_RET_ERRNO | ENOSYS;

}  // namespace

Filter::Filter() {
  program_ = {
      Statement(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      {BPF_JMP | BPF_JEQ | BPF_K, 1, 0, kArchitecture},
      Statement(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      Statement(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
  };
#if defined(__x86_64__)
  program_.push_back({BPF_JMP | BPF_JGE | BPF_K, 0, 1, kFirstX32});
  Return(kRefuseCall);
#endif
}

void Filter::Return(unsigned int answer) { program_.push_back(Statement(BPF_RET | BPF_K, answer)); }

void Filter::Answer(int call, unsigned int answer) {
  program_.push_back({BPF_JMP | BPF_JEQ | BPF_K, 0, 1, static_cast<unsigned int>(call)});
  Return(answer);
}

void Filter::Decide(int call, unsigned int argument, std::initializer_list<unsigned int> values,
                    To if_listed, To if_not) {
  Rule rule(call);
  rule.Load(argument);
  for (const unsigned int value : values) rule.IfEqual(value, if_listed);
  rule.Always(if_not).AppendTo(&program_);
}

void Filter::AllowIf(int call, unsigned int argument, std::initializer_list<unsigned int> values) {
  Decide(call, argument, values, To::kAllow, To::kRefuse);
}

void Filter::RefuseIf(int call, unsigned int argument, std::initializer_list<unsigned int> values) {
  Decide(call, argument, values, To::kRefuse, To::kAllow);
}

void Filter::OnlyThreads() {
  Rule(SYS_clone).Load(0).IfAnyBit(CLONE_THREAD, To::kAllow).AppendTo(&program_);
  // The flags of clone3 lie in memory, which a filter cannot read. After ENOSYS the C library uses
  // clone.
  Answer(SYS_clone3, kUnknown);
#if defined(__x86_64__)
  Refuse(SYS_fork);
  Refuse(SYS_vfork);
#endif
}

void Filter::OnlyReadsLimits(bool lowers_memory) {
  Rule rule(SYS_prlimit64);
  rule.Load(0).IfEqual(0, To::kNext, To::kRefuse);  // another process
  if (lowers_memory) rule.Load(1).IfEqual(RLIMIT_DATA, To::kAllow);
  // A null pointer to the new limit: the call only reads.
  rule.Load(2).IfEqual(0, To::kNext, To::kRefuse);
  rule.Load(2, true).IfEqual(0, To::kAllow).AppendTo(&program_);
  Refuse(SYS_setrlimit);
}

void Filter::OnlyItself(int call) { AllowIf(call, 0, {0, static_cast<unsigned int>(getpid())}); }

void Filter::OnlyItsPriority() {
  Rule rule(SYS_setpriority);
  rule.Load(0).IfEqual(PRIO_PROCESS, To::kNext, To::kRefuse);
  rule.Load(1).IfEqual(0, To::kAllow);
  rule.IfEqual(static_cast<unsigned int>(getpid()), To::kAllow).AppendTo(&program_);
}

void Filter::NoOwners() { RefuseIf(SYS_fcntl, 1, {F_SETOWN, F_SETOWN_EX}); }

void Filter::OnlyUnixStreams() {
  Rule rule(SYS_socket);
  rule.Load(0).IfEqual(AF_UNIX, To::kNext, To::kRefuse);
  rule.Load(1).Ignore(static_cast<unsigned int>(SOCK_CLOEXEC | SOCK_NONBLOCK));
  rule.IfEqual(static_cast<unsigned int>(SOCK_STREAM), To::kAllow);
  rule.IfEqual(static_cast<unsigned int>(SOCK_SEQPACKET), To::kAllow).AppendTo(&program_);
}

bool Filter::Install() {
  const sock_fprog filter{static_cast<unsigned short>(program_.size()), program_.data()};
  // Installs the filter for all existing threads. A result above 0 is the id of a thread that
  // already has a different filter.
  const long outcome =
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter);
  if (outcome > 0) errno = EBUSY;
  return outcome == 0;
}

bool Filter::InstallElseAllow() {
  Return(kAllowCall);
  return Install();
}

bool Filter::InstallElseRefuse() {
  program_.push_back({BPF_JMP | BPF_JGT | BPF_K, 0, 1, kNewestKnown});
  Return(kUnknown);
  Return(kRefuseCall);
  return Install();
}

void AllowComputing(Filter* filter) {
  constexpr int kCalls[] = {
      SYS_futex,
      SYS_mmap,
      SYS_munmap,
      SYS_mprotect,
      SYS_mremap,
      SYS_madvise,
      SYS_brk,
      SYS_clock_gettime,
      SYS_clock_getres,
      SYS_clock_nanosleep,
      SYS_nanosleep,
      SYS_gettimeofday,
      SYS_restart_syscall,
      SYS_rt_sigaction,
      SYS_rt_sigprocmask,
      SYS_rt_sigreturn,
      SYS_sigaltstack,
      SYS_set_robust_list,
      SYS_rseq,
      SYS_sched_yield,
      SYS_sched_getaffinity,
      SYS_getcpu,
      SYS_getrandom,
      SYS_getpid,
      SYS_gettid,
      SYS_getppid,
      SYS_getuid,
      SYS_geteuid,
      SYS_getgid,
      SYS_getegid,
      SYS_sysinfo,
      SYS_uname,
      SYS_getrusage,
      SYS_membarrier,
      SYS_exit,
      SYS_exit_group,
      SYS_set_tid_address,
#if defined(__x86_64__)
      SYS_time,
      SYS_arch_prctl,
#endif
#ifdef RGPU_SANITIZED
      SYS_pipe2,  // sanitizers use a pipe to test whether memory can be read
#if defined(__x86_64__)
      SYS_pipe,
#endif
#endif
  };
  for (const int call : kCalls) filter->Allow(call);
  filter->OnlyThreads();
  filter->OnlyReadsLimits();
  filter->OnlyItself(SYS_tgkill);  // for abort()
  filter->AllowIf(SYS_prctl, 0, {PR_SET_NAME, PR_GET_NAME});
}

void AllowOpenSockets(Filter* filter) {
  constexpr int kCalls[] = {
      SYS_read,    SYS_write,    SYS_readv,       SYS_writev,      SYS_recvfrom,
      SYS_recvmsg, SYS_recvmmsg, SYS_sendmsg,     SYS_sendmmsg,    SYS_accept,
      SYS_accept4, SYS_shutdown, SYS_close,       SYS_close_range, SYS_dup,
      SYS_dup3,    SYS_ppoll,    SYS_getsockopt,  SYS_setsockopt,  SYS_getsockname,
      SYS_fstat,   SYS_eventfd2, SYS_getpeername, SYS_newfstatat,  SYS_lseek,
#if defined(__x86_64__)
      SYS_poll,    SYS_dup2,
#endif
  };
  for (const int call : kCalls) filter->Allow(call);
  filter->Allow(SYS_sendto);
  filter->AllowIf(SYS_ioctl, 1, {FIONREAD, FIONBIO, SIOCOUTQ});
  filter->NoOwners();
}

}  // namespace rgpu::confine
