"""The filter of system calls, asked from inside: what runs in a worker starts no process, sets no
limit and reaches no other process, be it only by a signal or by its priority.
"""

from __future__ import annotations

import errno
from pathlib import Path

from helpers.builder import ROOT, Builder, run

EXPECTED = {
    "child": errno.EPERM,
    "child with shared memory": errno.EPERM,
    "clone3": errno.ENOSYS,
    "read limit": 0,
    "set limit": errno.EPERM,
    "read a limit of another": errno.EPERM,
    "set a limit of another": errno.EPERM,
    "setrlimit": errno.EPERM,
    "socket": errno.EPERM,
    "execve": errno.EPERM,
    "kill": errno.EPERM,
    "tgkill": 0,
    "tgkill of another": errno.EPERM,
    "set affinity": 0,
    "set affinity by its id": 0,
    "set affinity of another": errno.EPERM,
    "set scheduler": 0,
    "set scheduler of another": errno.EPERM,
    "set scheduling of another": errno.EPERM,
    "set priority": 0,
    "set priority of another": errno.EPERM,
    "set priority of a user": errno.EPERM,
    "duplicate": 0,
    "set owner": errno.EPERM,
    "set owner exactly": errno.EPERM,
    "thread": 0,
}


def test_what_the_filter_answers(tmp_path: Path) -> None:
    builder = Builder(tmp_path)
    sources = [
        Path(__file__).with_name("syscalls.cc"),
        ROOT / "rgpu_server" / "executor" / "seccomp.cc",
    ]
    done = run(builder.link("syscalls", builder.objects(sources)))
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (line.rpartition(" ") for line in done.stdout.splitlines())
    assert {name: int(number) for name, _, number in lines} == EXPECTED
