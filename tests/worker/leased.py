"""A session under a lease whose page the test writes, and the memory that the device holds
for it.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from helpers.ends import SECONDS, ended

from worker.client import LEGACY, Client
from worker.images import PTX, put_image
from worker.warm import LeasePage, open_session, pooled

MIB = 1 << 20
LIMIT = 64 * MIB
DEVICE = 1 << 30
INVALID_VALUE = 1
OUT_OF_MEMORY = 2
DEFAULT_POOL = 1 << 63


@contextmanager
def lazy_compiler() -> Iterator[socket.socket]:
    """The worker's end of a connection to a compiler, which starts when the worker asks it for
    something: most sessions of tests load no module.
    """
    ours, theirs = socket.socketpair()
    started: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        if theirs.recv(1, socket.MSG_PEEK):
            command = [sys.executable, "-m", "rgpu_emu.compiler", "--fd", str(theirs.fileno())]
            started.append(subprocess.Popen(command, pass_fds=(theirs.fileno(),), cwd="/"))
            theirs.close()

    waits = threading.Thread(target=start)
    waits.start()
    try:
        yield ours
    finally:
        ours.close()
        waits.join(SECONDS)
        theirs.close()
        for compiler in started:
            ended(compiler)


@contextmanager
def leased(
    limit: int = LIMIT, page: LeasePage | None = None, **environment: str
) -> Iterator[tuple[Client, LeasePage]]:
    """A session under a lease whose page the test writes."""
    page = page or LeasePage(limit)
    with lazy_compiler() as compiler, pooled("--no-sandbox", **environment) as warm:
        client = open_session(warm, page, compiler=compiler.fileno())
        compiler.close()
        yield client, page


def held(client: Client, page: LeasePage, limit: int = LIMIT) -> int:
    """Returns the bytes in use on the device. With a limit far above its size, rgpuMemGetInfo
    returns the device's own numbers.
    """
    page.set_limit(DEVICE * 1024)
    info = client.call("rgpuMemGetInfo")
    page.set_limit(limit)
    assert info["total"] == DEVICE
    return DEVICE - int(info["free"])


def view(client: Client) -> tuple[int, int]:
    info = client.call("rgpuMemGetInfo")
    return int(info["free"]), int(info["total"])


def until_refused(attempt: Callable[[int], int], most: int = 40_000) -> int:
    """Calls `attempt(n)` until it answers "out of memory"; how often it went well."""
    for n in range(most):
        status = attempt(n)
        if status == OUT_OF_MEMORY:
            return n
        assert status == 0, f"attempt {n} gave {status}"
    raise AssertionError("it was never refused")


def pool_alloc(client: Client, pool: int, count: int) -> int:
    return client.result("rgpuPoolAlloc", pool=pool, bytes=count, stream=LEGACY).status


def load(client: Client, module: int, data: bytes, what: str = "Module") -> int:
    put_image(client, 9000 + module, data)
    key = what.lower()
    return client.result(
        f"rgpu{what}Load", **{key: module}, image=9000 + module, options=b"",
        info_log_bytes=0, error_log_bytes=0,
    ).status  # fmt: skip


def with_table(size: int) -> bytes:
    table = f".visible .global .align 16 .b8 table[{size}];\n.visible .entry add".encode()
    return PTX.replace(b".visible .entry add", table)
