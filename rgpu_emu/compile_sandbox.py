"""Takes rights away from the compiler process.  What a machine does not allow is left as it is: the
worker that starts the compiler has its own, stronger sandbox; nothing here is the only wall."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
from typing import Final

REQUEST_SECONDS: Final = 60
REQUEST_BYTES: Final = 4 << 30
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_SET_DUMPABLE: Final = 4
_CLONE_NEWUSER: Final = 0x10000000
_CLONE_NEWNET: Final = 0x40000000


def enter_sandbox() -> list[str]:
    """No new privileges, no core files, no network.  Answers what could not be had, for the log."""
    libc = ctypes.CDLL(None, use_errno=True)
    refused = []
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        refused.append("no_new_privs")
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if libc.unshare(_CLONE_NEWNET) != 0 and libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
        refused.append("a network namespace of its own")
    return refused


def limit_request(keep: int) -> None:
    """In the child of a request: closes every descriptor but `keep` and stderr, bounds memory and
    CPU time."""
    os.closerange(3, keep)
    os.closerange(keep + 1, 1 << 16)
    for limit, value in (
        (resource.RLIMIT_AS, REQUEST_BYTES),
        (resource.RLIMIT_CPU, REQUEST_SECONDS),
        (resource.RLIMIT_FSIZE, 1 << 20),
    ):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(limit, (value, value))
