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

constexpr sock_filter Statement(unsigned short code, unsigned int value) {
  return {code, 0, 0, value};
}

constexpr sock_filter Jump(unsigned int value, unsigned char when_true, unsigned char when_false) {
  return {BPF_JMP | BPF_JEQ | BPF_K, when_true, when_false, value};
}

}  // namespace

const unsigned int Filter::kAllow = SECCOMP_RET_ALLOW;
const unsigned int Filter::kRefuse = SECCOMP_RET_ERRNO | EPERM;

Filter::Filter() {
  program_ = {
      Statement(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      Jump(kArchitecture, 1, 0),
      Statement(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      Statement(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
  };
#if defined(__x86_64__)
  program_.push_back({BPF_JMP | BPF_JGE | BPF_K, 0, 1, kFirstX32});
  Return(kRefuse);
#endif
}

void Filter::Return(unsigned int answer) { program_.push_back(Statement(BPF_RET | BPF_K, answer)); }

// Loads one half of an argument of the call. Both architectures are little-endian.
void Filter::Load(unsigned int argument, bool upper_half) {
  const unsigned int at = argument * 8 + (upper_half ? 4 : 0);
  program_.push_back(Statement(BPF_LD | BPF_W | BPF_ABS,
                               static_cast<unsigned int>(offsetof(seccomp_data, args)) + at));
}

void Filter::Answer(int call, unsigned int answer) {
  program_.push_back(Jump(static_cast<unsigned int>(call), 0, 1));
  Return(answer);
}

void Filter::Decide(int call, unsigned int argument, std::initializer_list<unsigned int> values,
                    unsigned int if_listed, unsigned int if_not) {
  const auto count = static_cast<unsigned char>(values.size());
  program_.push_back(
      Jump(static_cast<unsigned int>(call), 0, static_cast<unsigned char>(count + 3)));
  Load(argument);
  unsigned char left = count;
  for (const unsigned int value : values) program_.push_back(Jump(value, left--, 0));
  Return(if_not);
  Return(if_listed);
}

void Filter::AllowIf(int call, unsigned int argument, std::initializer_list<unsigned int> values) {
  Decide(call, argument, values, kAllow, kRefuse);
}

void Filter::RefuseIf(int call, unsigned int argument, std::initializer_list<unsigned int> values) {
  Decide(call, argument, values, kRefuse, kAllow);
}

void Filter::AllowIfClear(int call, unsigned int argument, unsigned int bits) {
  program_.push_back(Jump(static_cast<unsigned int>(call), 0, 4));
  Load(argument);
  program_.push_back({BPF_JMP | BPF_JSET | BPF_K, 0, 1, bits});
  Return(kRefuse);
  Return(kAllow);
}

void Filter::OnlyThreads() {
  program_.push_back(Jump(SYS_clone, 0, 4));
  Load(0);
  program_.push_back({BPF_JMP | BPF_JSET | BPF_K, 1, 0, CLONE_THREAD});
  Return(kRefuse);
  Return(kAllow);
  // The flags of clone3 lie in memory, which a filter cannot read. After ENOSYS the C library uses
  // clone.
  Answer(SYS_clone3, kUnknown);
#if defined(__x86_64__)
  Refuse(SYS_fork);
  Refuse(SYS_vfork);
#endif
}

void Filter::OnlyReadsLimits(bool lowers_memory) {
  constexpr unsigned int kNone = ~0U;
  program_.push_back(Jump(SYS_prlimit64, 0, 10));
  Load(0);
  program_.push_back(Jump(0, 0, 6));
  Load(1);
  program_.push_back(Jump(lowers_memory ? static_cast<unsigned int>(RLIMIT_DATA) : kNone, 5, 0));
  Load(2);
  program_.push_back(Jump(0, 0, 2));
  Load(2, true);
  program_.push_back(Jump(0, 1, 0));
  Return(kRefuse);
  Return(kAllow);
  Refuse(SYS_setrlimit);
}

void Filter::OnlyItself(int call) { AllowIf(call, 0, {0, static_cast<unsigned int>(getpid())}); }

void Filter::OnlyItsPriority() {
  program_.push_back(Jump(SYS_setpriority, 0, 7));
  Load(0);
  program_.push_back(Jump(PRIO_PROCESS, 0, 3));
  Load(1);
  program_.push_back(Jump(0, 2, 0));
  program_.push_back(Jump(static_cast<unsigned int>(getpid()), 1, 0));
  Return(kRefuse);
  Return(kAllow);
}

void Filter::NoOwners() { RefuseIf(SYS_fcntl, 1, {F_SETOWN, F_SETOWN_EX}); }

void Filter::OnlyUnixStreams() {
  const auto plain = static_cast<unsigned int>(SOCK_STREAM);
  const auto whole = static_cast<unsigned int>(SOCK_SEQPACKET);
  const auto flags = static_cast<unsigned int>(SOCK_CLOEXEC | SOCK_NONBLOCK);
  program_.push_back(Jump(SYS_socket, 0, 8));
  Load(0);
  program_.push_back(Jump(AF_UNIX, 0, 4));
  Load(1);
  program_.push_back(Statement(BPF_ALU | BPF_AND | BPF_K, ~flags));
  program_.push_back(Jump(plain, 2, 0));
  program_.push_back(Jump(whole, 1, 0));
  Return(kRefuse);
  Return(kAllow);
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
  Return(kAllow);
  return Install();
}

bool Filter::InstallElseRefuse() {
  program_.push_back({BPF_JMP | BPF_JGT | BPF_K, 0, 1, kNewestKnown});
  Return(kUnknown);
  Return(kRefuse);
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
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
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
