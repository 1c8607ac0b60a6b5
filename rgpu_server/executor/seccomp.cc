// The system calls that a worker is refused.  A list of what is refused, not of what is allowed:
// the device library decides what it needs, and NVIDIA's changes that from release to release.
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <vector>

#include "rgpu_server/executor/sandbox.h"

namespace rgpu::exec {

namespace {

#if defined(__x86_64__)
constexpr unsigned int kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr unsigned int kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "rgpu runs on x86-64 and aarch64"
#endif

// No worker has a use for these, whatever it drives.
constexpr int kRefused[] = {
    // Other processes and their memory.
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_kcmp,
    SYS_pidfd_getfd,
    SYS_pidfd_open,
    SYS_process_madvise,
    // The machine.
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_swapon,
    SYS_swapoff,
    SYS_reboot,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
    SYS_acct,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_adjtimex,
    SYS_clock_adjtime,
    SYS_quotactl,
    SYS_syslog,
    SYS_vhangup,
    SYS_setns,
    SYS_unshare,
    SYS_open_tree,
    SYS_move_mount,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    // Kernel facilities with a long record of holes.
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_name_to_handle_at,
    SYS_open_by_handle_at,
    SYS_fanotify_init,
    SYS_lookup_dcookie,
    SYS_vmsplice,
    SYS_personality,
    SYS_migrate_pages,
    SYS_move_pages,
#if defined(__x86_64__)
    SYS_modify_ldt,
    SYS_iopl,
    SYS_ioperm,
    SYS_uselib,
    SYS_ustat,
    SYS_sysfs,
    SYS_create_module,
    SYS__sysctl,
    SYS_nfsservctl,
    SYS_kexec_file_load,
#endif
};

// And these only by NVIDIA's driver: it starts nvidia-modprobe and speaks to its own services.
constexpr int kRefusedWithoutDriver[] = {
    SYS_execve,
    SYS_execveat,
    SYS_socketpair,
    SYS_bind,
    SYS_listen,
    SYS_kill,
    SYS_tkill,
    SYS_setuid,
    SYS_setgid,
    SYS_setreuid,
    SYS_setregid,
    SYS_setresuid,
    SYS_setresgid,
    SYS_mknodat,
    SYS_ioctl,
    SYS_shmget,
    SYS_shmat,
    SYS_semget,
    SYS_msgget,
    SYS_mq_open,
    SYS_inotify_init1,
    SYS_symlinkat,
    SYS_linkat,
    SYS_unlinkat,
    SYS_renameat2,
    SYS_mkdirat,
    SYS_truncate,
    SYS_fchownat,
    SYS_fchmodat,
    SYS_rt_sigqueueinfo,
    SYS_rt_tgsigqueueinfo,
    SYS_pidfd_send_signal,
    SYS_ioprio_set,
    SYS_setrlimit,
#if defined(__x86_64__)
    SYS_fork,
    SYS_vfork,
    SYS_open,
    SYS_creat,
    SYS_link,
    SYS_unlink,
    SYS_rename,
    SYS_mkdir,
    SYS_rmdir,
    SYS_symlink,
    SYS_chmod,
    SYS_chown,
    SYS_lchown,
    SYS_mknod,
    SYS_inotify_init,
#endif
};

// And these without NVIDIA's driver only about the process itself, which their first argument says:
// the workers of a daemon that is not root are all of one user.
constexpr int kOnlyForItself[] = {
    SYS_tgkill,  // abort
    SYS_sched_setaffinity,
    SYS_sched_setscheduler,
    SYS_sched_setparam,
    SYS_sched_setattr,
};

// The work of a gateway.
constexpr int kRefusedToWorkers[] = {
    SYS_socket,
    SYS_connect,
    SYS_accept,
    SYS_accept4,
};

constexpr sock_filter Statement(unsigned short code, unsigned int value) {
  return {code, 0, 0, value};
}
constexpr sock_filter Jump(unsigned int value, unsigned char when_true, unsigned char when_false) {
  return {BPF_JMP | BPF_JEQ | BPF_K, when_true, when_false, value};
}

void Refuse(std::vector<sock_filter>* program, int call) {
  program->push_back(Jump(static_cast<unsigned int>(call), 0, 1));
  program->push_back(Statement(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
}

// Loads half of an argument of the call: both architectures are little-endian.
sock_filter Argument(unsigned int index, bool upper_half = false) {
  const unsigned int at = index * 8 + (upper_half ? 4 : 0);
  return Statement(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args) + at);
}

// Threads only: the emulated device has them, and nothing in a worker has children.
void RefuseProcesses(std::vector<sock_filter>* program) {
  program->insert(
      program->end(),
      {
          Jump(SYS_clone, 0, 4),
          Argument(0),
          {BPF_JMP | BPF_JSET | BPF_K, 1, 0, CLONE_THREAD},
          Statement(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
          Statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
          // Its flags lie in memory, where a filter cannot look; the C library then uses clone.
          Jump(SYS_clone3, 0, 1),
          Statement(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      });
}

// Only to read the limits of this process.
void RefuseNewLimits(std::vector<sock_filter>* program) {
  program->insert(program->end(), {
                                      Jump(SYS_prlimit64, 0, 8),
                                      Argument(0),
                                      Jump(0, 0, 4),
                                      Argument(2),
                                      Jump(0, 0, 2),
                                      Argument(2, true),
                                      Jump(0, 1, 0),
                                      Statement(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                                      Statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
                                  });
}

// `call` about another process than this one, which its first argument names; 0 is this one.
void RefuseOthers(std::vector<sock_filter>* program, int call) {
  program->insert(program->end(), {
                                      Jump(static_cast<unsigned int>(call), 0, 5),
                                      Argument(0),
                                      Jump(0, 2, 0),
                                      Jump(static_cast<unsigned int>(getpid()), 1, 0),
                                      Statement(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                                      Statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
                                  });
}

// Priorities of other processes, of groups and of users.
void RefuseOthersPriorities(std::vector<sock_filter>* program) {
  program->insert(program->end(), {
                                      Jump(SYS_setpriority, 0, 7),
                                      Argument(0),
                                      Jump(PRIO_PROCESS, 0, 3),
                                      Argument(1),
                                      Jump(0, 2, 0),
                                      Jump(static_cast<unsigned int>(getpid()), 1, 0),
                                      Statement(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                                      Statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
                                  });
}

// The owner of a descriptor gets a signal, which may be SIGKILL, when something comes.
void RefuseOwners(std::vector<sock_filter>* program) {
  program->insert(program->end(), {
                                      Jump(SYS_fcntl, 0, 5),
                                      Argument(1),
                                      Jump(F_SETOWN, 1, 0),
                                      Jump(F_SETOWN_EX, 0, 1),
                                      Statement(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                                      Statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
                                  });
}

}  // namespace

bool InstallSeccomp(Calls profile) {
  std::vector<sock_filter> program = {
      Statement(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      Jump(kArchitecture, 1, 0),
      Statement(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      Statement(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
  };
#if defined(__x86_64__)
  // The x32 numbers would be a way around the list.
  program.push_back({BPF_JMP | BPF_JGE | BPF_K, 0, 1, 0x40000000U});
  program.push_back(Statement(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
#endif
  for (const int call : kRefused) Refuse(&program, call);
  if (profile == Calls::kWorker) {
    for (const int call : kRefusedToWorkers) Refuse(&program, call);
  }
  if (profile != Calls::kDriver) {
    for (const int call : kRefusedWithoutDriver) Refuse(&program, call);
    for (const int call : kOnlyForItself) RefuseOthers(&program, call);
    RefuseOthersPriorities(&program);
    RefuseOwners(&program);
    RefuseProcesses(&program);
    RefuseNewLimits(&program);
  }
  program.push_back(Statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

}  // namespace rgpu::exec
