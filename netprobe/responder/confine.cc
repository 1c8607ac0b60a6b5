#include "netprobe/responder/confine.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <vector>

namespace netprobe {
namespace {

#if defined(__x86_64__)
constexpr unsigned int kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr unsigned int kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "netprobe-responder runs on x86-64 and aarch64"
#endif

constexpr rlim_t kMaxDescriptors = 512;
// Of the memory that a ring lies in, which is the only file it makes.
constexpr rlim_t kMaxRingBytes = 64 << 20;

// It moves bytes between sockets that it already has, or accepts: no file, no program, no other
// process, no connection of its own making.
constexpr unsigned int kRefused[] = {
    SYS_openat,
    SYS_openat2,
    SYS_execve,
    SYS_execveat,
    SYS_socket,
    SYS_connect,
    SYS_bind,
    SYS_listen,
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_pidfd_open,
    SYS_pidfd_getfd,
    SYS_kill,
    SYS_tkill,
    SYS_unshare,
    SYS_setns,
    SYS_mount,
    SYS_unlinkat,
    SYS_mkdirat,
    SYS_linkat,
    SYS_symlinkat,
    SYS_renameat2,
    SYS_io_uring_setup,
    SYS_bpf,
    SYS_userfaultfd,
    SYS_keyctl,
    SYS_perf_event_open,
#if defined(__x86_64__)
    SYS_open,
    SYS_creat,
    SYS_unlink,
    SYS_rename,
    SYS_mkdir,
    SYS_fork,
    SYS_vfork,
#endif
};

void Lower(decltype(RLIMIT_CORE) what, rlim_t most) {
  rlimit limit{};
  if (getrlimit(what, &limit) != 0) return;
  if (limit.rlim_max == RLIM_INFINITY || limit.rlim_max > most) limit.rlim_max = most;
  if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > most) limit.rlim_cur = most;
  setrlimit(what, &limit);
}

}  // namespace

bool Confine() {
  Lower(RLIMIT_CORE, 0);
  Lower(RLIMIT_FSIZE, kMaxRingBytes);
  Lower(RLIMIT_NOFILE, kMaxDescriptors);
  prctl(PR_SET_DUMPABLE, 0);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  std::vector<sock_filter> filter = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
  };
  for (const unsigned int call : kRefused) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
  }
#if defined(__x86_64__)
  // The other numbering of the same processor.
  filter.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1));
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
#endif
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace netprobe
