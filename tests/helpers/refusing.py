"""`python refusing.py CALL[=ERRNO],... COMMAND...`: runs a command under a filter that refuses
system calls, as the seccomp profile of a container does.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from pathlib import Path

# Call -> its number on x86-64 and on aarch64.
_NUMBERS = {
    "unshare": (272, 97),
    "setresuid": (117, 147),
    "capset": (126, 91),
    "seccomp": (317, 277),
    "landlock_create_ruleset": (444, 444),
}
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _MODE_FILTER = 22, 38, 2


def refusing(*calls: str) -> tuple[str, ...]:
    """Returns the words to put before a command so that it runs with these calls refused."""
    return (sys.executable, str(Path(__file__)), ",".join(calls))


class _Program(ctypes.Structure):
    _fields_ = [("count", ctypes.c_ushort), ("filters", ctypes.c_char_p)]


def _refuse(calls: list[str]) -> None:
    program = [(_LOAD, 0, 0, 0)]
    for call in calls:
        name, _, error = call.partition("=")
        number = _NUMBERS[name][platform.machine() == "aarch64"]
        answer = _ERRNO | getattr(errno, error or "EPERM")
        program += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, answer)]
    program.append((_RETURN, 0, 0, _ALLOW))
    text = b"".join(struct.pack("<HBBI", *line) for line in program)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    filters = _Program(len(program), text)
    assert libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(filters), 0, 0) == 0


if __name__ == "__main__":
    _refuse(sys.argv[1].split(","))
    os.execv(sys.argv[2], sys.argv[2:])
