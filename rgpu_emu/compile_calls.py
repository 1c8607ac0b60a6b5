"""The list of system calls that a job may use, as a filter in the kernel."""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
from typing import Final

# The kernel's services that a job may use: memory, time, its own signals, writes to open
# descriptors, and its end. By machine: the architecture's audit number, and the numbers of the
# calls.
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


def filter_program() -> list[tuple[int, int, int, int]] | None:
    """Returns the filter, or None for a machine whose system calls are not listed here.

    A call that is not listed fails with EPERM. A call in the convention of another architecture
    ends the process.
    """
    known = _ALLOWED.get(platform.machine())
    if known is None:
        return None
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
    return program


def as_argument(program: list[tuple[int, int, int, int]]) -> ctypes.Structure:
    """Returns the program in the form for prctl. The result keeps the filters alive."""
    text = b"".join(struct.pack("<HBBI", *line) for line in program)
    return _Program(len(program), text)
