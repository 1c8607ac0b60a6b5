"""Takes rights away from the compiler.

The process that waits on the sessions' sockets keeps what it needs: its cache folder and the right
to start children.  The child that meets a tenant's PTX keeps nothing: a user of its own, no
capabilities, and a list of the few system calls that computing needs; it can open no file and no
socket, and start nothing.  What a machine does not allow of this is left as it is and named.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import resource
import struct
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

REQUEST_SECONDS: Final = 60
REQUEST_BYTES: Final = 4 << 30
EXIT_MEMORY: Final = 12  # exit status of a child that ran out of memory
# Above what systems give to people, services and containers; the workers have the same range.
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

# What a request may ask of the kernel: memory, time, its own signals, writing to what is open, the
# end.  By machine: the audit number of the architecture, and the numbers of the calls.
_ALLOWED: Final = {
    "x86_64": (
        0xC000003E,
        {
            "read": 0, "write": 1, "close": 3, "fstat": 5, "lseek": 8, "mmap": 9, "mprotect": 10,
            "munmap": 11, "brk": 12, "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15,
            "writev": 20, "sched_yield": 24, "mremap": 25, "madvise": 28, "nanosleep": 35,
            "getpid": 39, "exit": 60, "uname": 63, "gettimeofday": 96, "getrusage": 98,
            "sysinfo": 99, "times": 100, "sigaltstack": 131, "gettid": 186, "futex": 202,
            "sched_getaffinity": 204, "clock_gettime": 228, "clock_nanosleep": 230,
            "exit_group": 231, "getcpu": 309, "getrandom": 318,
        },
    ),
    "aarch64": (
        0xC00000B7,
        {
            "close": 57, "lseek": 62, "read": 63, "write": 64, "writev": 66, "fstat": 80,
            "exit": 93, "exit_group": 94, "futex": 98, "nanosleep": 101, "clock_gettime": 113,
            "clock_nanosleep": 115, "sched_getaffinity": 123, "sched_yield": 124,
            "sigaltstack": 132, "rt_sigaction": 134, "rt_sigprocmask": 135, "rt_sigreturn": 139,
            "times": 153, "uname": 160, "getrusage": 165, "getcpu": 168, "gettimeofday": 169,
            "getpid": 172, "gettid": 178, "sysinfo": 179, "brk": 214, "munmap": 215,
            "mremap": 216, "mmap": 222, "mprotect": 226, "madvise": 233, "getrandom": 278,
        },
    ),
}  # fmt: skip

_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ARCHITECTURE_AT, _NUMBER_AT = 4, 0
_KILL, _REFUSE, _ALLOW = 0x80000000, 0x00050000 | errno.EPERM, 0x7FFF0000


class _Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = [("count", ctypes.c_ushort), ("filters", ctypes.c_char_p)]


@lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def enter_sandbox() -> list[str]:
    """No new privileges, no core files, no network.  Answers what could not be had, for the log."""
    libc = _libc()
    refused = []
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        refused.append("no_new_privs")
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    wanted = _CLONE_NEWNET | _CLONE_NEWIPC
    if libc.unshare(wanted) != 0 and libc.unshare(_CLONE_NEWUSER | wanted) != 0:
        refused.append("a network namespace of its own")
    if platform.machine() not in _ALLOWED:
        refused.append("a list of system calls")
    return refused


def limit_request(keep: int) -> None:
    """In the child of a request: closes every descriptor but `keep` and stderr, bounds memory and
    CPU time, and gives up every right."""
    os.closerange(3, keep)
    os.closerange(keep + 1, 1 << 16)
    for limit, value in (
        (resource.RLIMIT_AS, REQUEST_BYTES),
        (resource.RLIMIT_CPU, REQUEST_SECONDS),
        (resource.RLIMIT_FSIZE, 1 << 20),
    ):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(limit, (value, value))
    with contextlib.suppress(OSError):
        os.nice(5)  # a tenant's compilations come after the sessions' own work
    _drop_user()
    _drop_capabilities()
    # Changing the user makes a process inspectable again, and a filter needs the other.
    _libc().prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    _libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _filter_calls()


def _drop_user() -> None:
    """A user that nobody else is: neither the daemon's files nor other processes are its own."""
    if os.geteuid() != 0:
        return
    user = FIRST_UID + os.getpid() % _UID_RANGE
    with contextlib.suppress(OSError):
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)


def _drop_capabilities() -> None:
    header = struct.pack("<Ii", _CAPABILITY_VERSION_3, 0)
    _libc().capset(header, bytes(24))


def _filter_calls() -> None:
    """Whatever is not listed is answered EPERM; a foreign calling convention ends the process."""
    known = _ALLOWED.get(platform.machine())
    if known is None:
        return
    architecture, calls = known
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
    ]
    for number in calls.values():
        program += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    program.append((_RETURN, 0, 0, _REFUSE))
    text = b"".join(struct.pack("<HBBI", *line) for line in program)
    filters = _Program(len(program), text)
    _libc().prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(filters), 0, 0)


def spawn(job: Callable[[], bytes]) -> tuple[int, int]:
    """A child at work: the pipe that its answer comes through, and its process id."""
    reader, writer = os.pipe()
    try:
        pid = os.fork()
        if pid == 0:
            _child(job, writer)
        os.set_blocking(reader, False)
    except OSError:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    return reader, pid


def _child(job: Callable[[], bytes], writer: int) -> None:
    """Works on one request and never returns."""
    code = 1
    try:
        limit_request(writer)
        body = memoryview(job())
        while body:
            body = body[os.write(writer, body) :]
        code = 0
    except (MemoryError, RecursionError):
        code = EXIT_MEMORY
    finally:
        if code == 1:
            sys.excepthook(*sys.exc_info())
        os._exit(code)
