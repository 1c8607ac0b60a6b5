"""Takes rights away from the compiler.

The process that waits on the sessions' sockets has its own user, no capabilities and no network. Of
the file system it can use only the folder of its tenant's compiled objects. A job, which reads a
tenant's PTX, has no rights: it can open no file and no socket, and start no process. A list names
the few system calls that computing needs. If a machine does not allow a measure, the process goes
on without it and names it in a Report, which the daemon judges as it judges a worker's.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import struct
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from rgpu_emu.compile_calls import as_argument, filter_program

EXIT_MEMORY: Final = 12  # exit status of a job that ran out of memory
# The measures, with the names that a worker's report uses.
NETWORK_NAMESPACE: Final = "network-namespace"
OWN_USER: Final = "own-user"
LANDLOCK: Final = "landlock"
NO_NEW_PRIVILEGES: Final = "no-new-privileges"
CAPABILITIES: Final = "capabilities"
NOT_INSPECTABLE: Final = "not-inspectable"
LIMITS: Final = "limits"
SYSTEM_CALLS: Final = "system-calls"
# Above the ids that systems give to people, services and containers. Workers use the same range.
FIRST_UID: Final = 0x60000000
_UID_RANGE: Final = 0x10000000
_PR_SET_DUMPABLE: Final = 4
_PR_SET_SECCOMP: Final = 22
_PR_SET_NO_NEW_PRIVS: Final = 38
_SECCOMP_MODE_FILTER: Final = 2
_CAPABILITY_VERSION_3: Final = 0x20080522
_CLONE_NEWIPC: Final = 0x08000000
_CLONE_NEWUSER: Final = 0x10000000
_CLONE_NEWNET: Final = 0x40000000
_LANDLOCK_CREATE_RULESET: Final = 444
_LANDLOCK_ADD_RULE: Final = 445
_LANDLOCK_RESTRICT_SELF: Final = 446
_RULE_PATH_BENEATH: Final = 1
# All access rights of Landlock's first version, from executing a file to making a symbolic link.
_FILE_ACCESS: Final = (1 << 13) - 1
_MAX_DESCRIPTORS: Final = 1 << 16


@dataclass(frozen=True)
class JobLimits:
    """Limits of one job that the kernel enforces: address space, and processor time of its whole
    life.
    """

    memory_bytes: int
    cpu_seconds: int


class Report:
    """The missing measures, as one line: "MEASURE: reason; MEASURE: reason"."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def lacks(self, measure: str, why: str) -> None:
        self._lines.append(f"{measure}: {why}")

    def refused(self, measure: str, call: str, number: int) -> None:
        """Adds a measure whose system call failed."""
        self.lacks(measure, f"{errno.errorcode.get(number, number)} from {call}")

    def add(self, text: str) -> None:
        """Adds the measures of another report."""
        self._lines += [line for line in text.split("; ") if line]

    def text(self) -> str:
        return "; ".join(dict.fromkeys(self._lines))


@lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def enter_sandbox(user: int, processes: int, report: Report) -> None:
    """Restricts the process that waits on sockets: another user, no capabilities, no network, no
    core files.

    Args:
        user: the user that it becomes, from `own_user` or `shared_user`.
        processes: the most processes of that user, 0 for no bound.
        report: gets the measures that are missing.
    """
    _limit(resource.RLIMIT_CORE, 0, report)
    libc = _libc()
    wanted = _CLONE_NEWNET | _CLONE_NEWIPC
    left = libc.unshare(wanted) == 0
    # Do this before making a user namespace: inside one no process can become another user of the
    # machine.
    if _become(user, report) and processes:
        _limit(resource.RLIMIT_NPROC, processes, report)
    # A process without privileges may make a network namespace inside its own user namespace.
    if not left and libc.unshare(_CLONE_NEWUSER | wanted) != 0:
        report.refused(NETWORK_NAMESPACE, "unshare", ctypes.get_errno())
    _drop_capabilities(report)
    _forbid_gains(report)


def keep_folder(folder: int, report: Report) -> None:
    """Restricts the process to the files below an open folder (-1: to no files)."""
    attributes = struct.pack("<Q", _FILE_ACCESS)
    libc = _libc()
    ruleset = libc.syscall(_LANDLOCK_CREATE_RULESET, attributes, ctypes.c_size_t(8), 0)
    if ruleset < 0:
        report.refused(LANDLOCK, "landlock_create_ruleset", ctypes.get_errno())
        return
    if folder >= 0:
        rule = struct.pack("<Qi", _FILE_ACCESS, folder)
        if libc.syscall(_LANDLOCK_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0) != 0:
            report.refused(LANDLOCK, "landlock_add_rule", ctypes.get_errno())
    if libc.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0) != 0:
        report.refused(LANDLOCK, "landlock_restrict_self", ctypes.get_errno())
    os.close(ruleset)


def limit_request(keep: int, limits: JobLimits, report: Report) -> None:
    """Restricts a job: closes every descriptor but `keep` and stderr, bounds memory and processor
    time, and gives up every right.
    """
    os.closerange(3, keep)
    os.closerange(keep + 1, _MAX_DESCRIPTORS)
    _limit(resource.RLIMIT_AS, limits.memory_bytes, report)
    _limit(resource.RLIMIT_CPU, limits.cpu_seconds, report)
    _limit(resource.RLIMIT_FSIZE, 1 << 20, report)
    _limit(resource.RLIMIT_NPROC, 0, report)
    with contextlib.suppress(OSError):
        os.nice(5)  # the sessions' own work comes before compilations
    keep_folder(-1, report)
    _drop_capabilities(report)
    _forbid_gains(report)
    _filter_calls(report)


def trial(limits: JobLimits) -> str:
    """Returns a report of the measures that a job's sandbox lacks on this machine, as a job finds
    them.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            report = Report()
            limit_request(writer, limits, report)
            os.write(writer, report.text().encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        text = file.read()
    if os.waitpid(pid, 0)[1] != 0 and not text:
        return "sandbox: a process with it ended at once"
    return text.decode("utf-8", "replace")


def processor_seconds(job: int) -> float:
    """Returns the processor time of a job so far. It has no children."""
    # The number that clock_getcpuclockid returns; Python does not offer that function.
    try:
        return time.clock_gettime(((~job) << 3) | 2)
    except OSError:
        return 0.0


def slow_down(job: int) -> None:
    """Makes a job run only when the machine has nothing else to do."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(job, os.SCHED_IDLE, os.sched_param(0))


def _limit(what: int, most: int, report: Report) -> None:
    try:
        _, hard = resource.getrlimit(what)
        value = most if hard == resource.RLIM_INFINITY else min(hard, most)
        resource.setrlimit(what, (value, value))
    except (ValueError, OSError) as error:
        report.refused(LIMITS, "setrlimit", getattr(error, "errno", 0) or 0)


def own_user(pid: int = 0) -> int:
    """Returns the uid for a compiler of a daemon that runs as root, which no other process has; -1
    if this process is not root. pid 0: this process.
    """
    return _user(pid or os.getpid())


def _user(number: int) -> int:
    if os.geteuid() != 0:
        return -1
    end, count = _users()
    if end == 0 or end >= FIRST_UID + _UID_RANGE:
        return FIRST_UID + number % _UID_RANGE
    return end - 1 - number % max(count // 2, 1)


def _users() -> tuple[int, int]:
    """Returns the end of the range of uids that exist here, and the number of uids in that range.

    A container with user namespaces has fewer uids than the machine.
    """
    end = count = 0
    with contextlib.suppress(OSError, ValueError), open("/proc/self/uid_map") as lines:
        for line in lines:
            inside, _, size = map(int, line.split())
            if inside + size >= end:
                end, count = inside + size, size
    return end, count


def shared_user() -> int:
    """Returns the uid for all compilers that root's own programs start: they share one folder of
    objects.
    """
    return _user(_UID_RANGE - 1)


def _become(user: int, report: Report) -> bool:
    """Becomes the user, which owns neither the daemon's files nor its processes. Returns True on
    success.
    """
    if user < 0:
        report.lacks(OWN_USER, "the server does not run as root")
        return False
    try:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    except OSError as error:
        report.refused(OWN_USER, "setresuid", error.errno or 0)
        return False
    return True


def _drop_capabilities(report: Report) -> None:
    header = struct.pack("<Ii", _CAPABILITY_VERSION_3, 0)
    if _libc().capset(header, bytes(24)) != 0:
        report.refused(CAPABILITIES, "capset", ctypes.get_errno())


def _forbid_gains(report: Report) -> None:
    """Forbids new privileges by executed programs, and inspection by other processes of the same
    user.
    """
    if _libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        report.refused(NO_NEW_PRIVILEGES, "prctl", ctypes.get_errno())
    if _libc().prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        report.refused(NOT_INSPECTABLE, "prctl", ctypes.get_errno())


def _filter_calls(report: Report) -> None:
    program = filter_program()
    if program is None:
        report.lacks(SYSTEM_CALLS, "the list of this machine's calls is not known")
        return
    argument = ctypes.byref(as_argument(program))
    if _libc().prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, argument, 0, 0) != 0:
        report.refused(SYSTEM_CALLS, "prctl", ctypes.get_errno())
