"""Strangers with very many claims: the server goes on serving others."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

from helpers.command import run_rgpu
from helpers.server import Server

from rgpu_common.wire.claim import Claim
from rgpu_common.wire.fields import Wish, WishKey
from rgpu_common.wire.hello import Hello, encode_hello

FILES = 1024
CLAIMS = 600
WAIT_MS = 3_600_000


def claim(server: Server, number: int) -> socket.socket:
    """Opens a claim whose connection stays open and whose answers are not read."""
    wishes = (Wish(WishKey.CLAIM, int(Claim.WANTED | Claim.OWN)), Wish(WishKey.WAIT, WAIT_MS))
    hello = Hello(
        tenant=f"mallory-{number % 40}",
        lease_key=f"k{number}",
        memory_bytes=1 << 20 if number < CLAIMS // 2 else 2 << 30,
        wishes=wishes,
    )
    host, _, port = server.tcp.rpartition(":")
    connection = socket.create_connection((host, int(port)), 20)
    connection.sendall(encode_hello(hello))
    return connection


def test_claims_do_not_take_all_open_files_of_a_server() -> None:
    """A regression: with a hard limit of 1024 open files no other client could connect."""
    few = ("sh", "-c", f'ulimit -n {FILES} && exec "$@"', "sh")
    with Server(before=few) as server, contextlib.ExitStack() as stack:
        assert any(f"{FILES} open files" in line for line in server.log), server.log
        assert server.process is not None
        descriptors = Path(f"/proc/{server.process.pid}/fd")
        for number in range(CLAIMS):
            stack.enter_context(claim(server, number))
        code = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
        for path in (f"tcp:{server.tcp}", server.unix):
            result = run_rgpu(
                "run", "--server", path, "--memory", "16MiB", "--", "python", "-c", code
            )
            # The tenant's or the server's bound may leave no room for another run, but the server
            # says so.
            refused = "the most that are allowed" in result.stderr
            assert result.returncode == 0 or refused, result.stderr
        assert len(list(descriptors.iterdir())) < FILES * 3 // 4
        assert run_rgpu("ps", "--server", server.tcp).returncode == 0
