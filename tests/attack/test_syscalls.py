"""The filters of system calls, tested from inside. A worker can start no process or program, set no
limit, connect to nothing, and reach no other process, not even by a signal or its priority. A
gateway can make only the calls on its list.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from helpers.builder import ROOT, Builder, run

EPERM = errno.EPERM
# Of every process that is confined, whatever it drives: no other process, no program.
NOBODY_ELSE = {
    "execve": EPERM,
    "execveat": EPERM,
    "kill": EPERM,
    "tkill": EPERM,
    "tgkill": 0,
    "tgkill of another": EPERM,
    "queue a signal": EPERM,
    "queue a signal to a thread": EPERM,
    "open a process": EPERM,
    "signal by a descriptor": EPERM,
    "trace": EPERM,
    "read another's memory": EPERM,
    "write another's memory": EPERM,
    "set owner": EPERM,
    "set owner exactly": EPERM,
    "duplicate": 0,
    "thread": 0,
}
THREADS_ONLY = {
    "child": EPERM,
    "child with shared memory": EPERM,
    "clone3": errno.ENOSYS,
    "read limit": 0,
    "read a limit of another": EPERM,
    "set a limit of another": EPERM,
}
NO_CONNECTIONS = {
    "socket": EPERM,
    "datagram socket": EPERM,
    "local datagram socket": EPERM,
    "connect": EPERM,
    "bind": EPERM,
    "listen": EPERM,
}
EXPECTED = {
    "worker": {
        **NOBODY_ELSE,
        **THREADS_ONLY,
        **NO_CONNECTIONS,
        "local socket": EPERM,
        "pair of sockets": EPERM,
        "read the limit of memory": 0,
        "set the limit of memory": 0,
        "limit of memory of another": EPERM,
        "set limit": EPERM,
        "setrlimit": EPERM,
        "set affinity": 0,
        "set affinity by its id": 0,
        "set affinity of another": EPERM,
        "set scheduler": 0,
        "set scheduler of another": EPERM,
        "set scheduling of another": EPERM,
        "set priority": 0,
        "set priority of another": EPERM,
        "set priority of a user": EPERM,
    },
    # NVIDIA's driver reads files, asks for MPS on a socket that it then cannot connect, and listens
    # on a Unix socket to which nobody can connect.  The calls that are let through get a bad socket.
    "driver": {
        **NOBODY_ELSE,
        **THREADS_ONLY,
        **NO_CONNECTIONS,
        "bind": errno.EBADF,
        "listen": errno.EBADF,
        "accept": EPERM,
        "local socket": 0,
        "open a file": 0,
        "read": 0,
    },
    "ucx": {**NOBODY_ELSE, "socket": 0},
    "gateway": {
        **NOBODY_ELSE,
        **THREADS_ONLY,
        **NO_CONNECTIONS,
        "local socket": EPERM,
        "set limit": EPERM,
        "set the limit of memory": EPERM,
        "open a file": EPERM,
        "set affinity": EPERM,
        "set priority": EPERM,
        "pair of sockets": 0,
        "read": 0,
    },
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    builder = Builder(tmp_path_factory.mktemp("syscalls"))
    sources = [
        Path(__file__).with_name("syscalls.cc"),
        ROOT / "rgpu_common" / "native" / "confine" / "calls.cc",
        ROOT / "rgpu_common" / "native" / "confine" / "filter.cc",
        ROOT / "rgpu_common" / "native" / "confine" / "rule.cc",
    ]
    return builder.link("syscalls", builder.objects(sources))


@pytest.mark.parametrize("profile", list(EXPECTED))
def test_what_the_filter_answers(program: Path, profile: str) -> None:
    done = run(program, profile)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (line.rpartition(" ") for line in done.stdout.splitlines())
    answers = {name: int(number) for name, _, number in lines}
    expected = EXPECTED[profile]
    assert {name: answers[name] for name in expected} == expected
