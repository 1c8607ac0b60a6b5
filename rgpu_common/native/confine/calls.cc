// The system calls that a worker is refused. The list names refused calls, not allowed ones,
// because the device library decides which calls it needs, and NVIDIA's changes from release to
// release.
#include <sys/syscall.h>

#include "rgpu_common/native/confine/filter.h"
#include "rgpu_common/native/confine/sandbox.h"

namespace rgpu::confine {

namespace {

// Refused to every worker, whatever its device library.
constexpr int kRefused[] = {
    // Other processes and their memory.
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_kcmp,
    SYS_pidfd_getfd,
    SYS_pidfd_open,
    SYS_process_madvise,
    SYS_pidfd_send_signal,
    SYS_kill,
    SYS_tkill,
    SYS_rt_sigqueueinfo,
    SYS_rt_tgsigqueueinfo,
    // Other programs.
    SYS_execve,
    SYS_execveat,
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

// Refused in addition to workers without NVIDIA's driver.
constexpr int kRefusedWithoutDriver[] = {
    // NVIDIA's driver listens on an abstract Unix socket, and cuInit fails with
    // CUDA_ERROR_OPERATING_SYSTEM if it cannot. No process gets a connection: the network namespace
    // is the worker's own, other workers may not connect, and this one may not accept.
    SYS_bind,
    SYS_listen,
    SYS_socketpair,
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
    // The lease page is a file of the daemon's user, which the worker's user may not open for
    // writing; chmod would allow it.
    SYS_fchmod,
    SYS_fchmodat,
    452,  // fchmodat2, unknown to the headers of older systems
    SYS_ioprio_set,
#if defined(__x86_64__)
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

// Allowed only for the calling process itself (named by the first argument) to workers without
// NVIDIA's driver. If the daemon is not root, all its workers run as one user.
constexpr int kOnlyForItself[] = {
    SYS_sched_setaffinity,
    SYS_sched_setscheduler,
    SYS_sched_setparam,
    SYS_sched_setattr,
};

// A worker receives its connections from the daemon. NVIDIA's driver looks for MPS by connecting to
// its control daemon, and goes on without MPS if it cannot (nvidia-cuda-mps-control(1)). The driver
// starts nvidia-modprobe if device files are missing. The daemon's own use of the device has done
// that already, and with no_new_privs the program would have no privileges anyway.
constexpr int kRefusedToWorkers[] = {SYS_connect, SYS_accept, SYS_accept4};

template <size_t kCount>
void Refuse(Filter* filter, const int (&calls)[kCount]) {
  for (const int call : calls) filter->Refuse(call);
}

}  // namespace

bool InstallSeccomp(Calls profile) {
  Filter filter;
  Refuse(&filter, kRefused);
  filter.OnlyItself(SYS_tgkill);  // abort() needs it
  filter.NoOwners();
  if (profile == Calls::kUcx) return filter.InstallElseAllow();
  Refuse(&filter, kRefusedToWorkers);
  filter.OnlyThreads();
  if (profile == Calls::kDriver) {
    filter.OnlyUnixStreams();
    filter.OnlyItself(SYS_prlimit64);
    return filter.InstallElseAllow();
  }
  filter.Refuse(SYS_socket);
  Refuse(&filter, kRefusedWithoutDriver);
  for (const int call : kOnlyForItself) filter.OnlyItself(call);
  filter.OnlyItsPriority();
  filter.OnlyReadsLimits(/*lowers_memory=*/true);  // ceiling.h
  return filter.InstallElseAllow();
}

// The gateway has its keys in memory and receives its listening sockets. It gives the daemon one
// end of a socket pair for each client. So it opens no files and connects to nothing.
bool AllowGatewayCalls() {
  Filter filter;
  AllowComputing(&filter);
  AllowOpenSockets(&filter);
  filter.Allow(SYS_socketpair);
  return filter.InstallElseRefuse();
}

}  // namespace rgpu::confine
