"""Clients that use resources and release none: their use is bounded, and is freed when
they leave.
"""

from __future__ import annotations

import os
import select
from pathlib import Path

import pytest
from helpers import clients
from helpers.asking import running_on
from helpers.server import Server
from helpers.waiting import wait_until
from worker.client import SECONDS, Client, session

from rgpu_common.wire.codec import encode_command

MIB = 1 << 20


def resident(client: Client) -> int:
    """Bytes of memory that the worker has touched."""
    pages = int(Path(f"/proc/{client.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


def frame(client: Client, name: str, **values: int) -> bytes:
    client.seq += 1
    return encode_command(name, values, seq=client.seq, thread=1, context=client.context)


def push(client: Client, data: bytes, seconds: float = 0.5) -> bool:
    """Sends without ever reading; False when the worker takes no more or has closed."""
    client.socket.settimeout(seconds)
    try:
        client.socket.sendall(data)
    except OSError:
        return False
    return True


def leaves(client: Client) -> None:
    """The client goes away, and its worker in good time."""
    client.socket.close()
    client.control.socket.close()
    assert client.process.wait(SECONDS) == 0


def test_a_client_that_never_reads_replies() -> None:
    with session() as client:
        for _ in range(400):
            burst = b"".join(frame(client, "rgpuPing", echo=1) for _ in range(250))
            if not push(client, burst):
                break
        assert resident(client) < 256 * MIB
        leaves(client)


def test_images_that_never_end() -> None:
    with session() as client:
        for image in range(500, 700):
            client.post("rgpuImagePut", image=image, offset=0, total=200 * MIB, bulk=bytes(MIB))
        client.post("rgpuImagePut", image=900, offset=0, total=(1 << 64) - 1, bulk=b"x")
        client.post("rgpuImagePut", image=901, offset=5, total=10, bulk=b"overlaps")
        for _ in range(500):
            client.post("rgpuImagePut", image=902, offset=0, total=0)
        assert client.result("rgpuPing", echo=1).status == 0
        assert resident(client) < 320 * MIB
        leaves(client)


@pytest.mark.parametrize("what", ["rgpuStreamCreate", "rgpuEventCreate"])
def test_handles_without_end(what: str) -> None:
    more = {"flags": 1, "priority": 0} if what == "rgpuStreamCreate" else {"flags": 0}
    kind = what.removeprefix("rgpu").removesuffix("Create").lower()
    with session() as client:
        for start in range(100, 20_100, 500):
            burst = b"".join(
                frame(client, what, **{kind: n}, **more) for n in range(start, start + 500)
            )
            assert push(client, burst, 10)
            while select.select([client.socket], [], [], 0)[0]:
                client.take(client.frame())
        assert client.result("rgpuPing", echo=1).status == 0
        assert resident(client) < 256 * MIB
        leaves(client)


def test_streams_that_wait_for_ever_and_commands_behind_them() -> None:
    with session() as client:
        address = client.alloc(MIB)
        client.upload(address, bytes(8))
        for stream in range(20, 40):
            client.post("rgpuStreamCreate", stream=stream, flags=1, priority=0)
            client.wait_value(stream, address, 1)
        for n in range(400):
            burst = b"".join(
                frame(client, "rgpuMemset", dst=address, pitch=0, element_bytes=1, value=0,
                      width=4096, height=1, stream=20 + n % 20, synchronous=0)
                for _ in range(100)
            )  # fmt: skip
            if not push(client, burst):
                break
        assert resident(client) < 256 * MIB
        leaves(client)


def test_bytes_that_are_asked_for_and_never_come() -> None:
    with session() as client:
        address = client.alloc(256 * MIB)
        for _ in range(3):
            client.post(
                "rgpuCopyHtoDPull", dst=address, pitch=0, width=256 * MIB, height=1, stream=1
            )
        leaves(client)


def test_a_client_that_dies_with_an_endless_kernel(server: Server) -> None:
    client = clients.start(
        server.tcp,
        """
        PTX = (b".version 7.0\\n.target sm_50\\n.address_size 64\\n"
               b".visible .entry k(.param .u64 p) { L: bra L; }")
        cuda.open()
        kernel = cuda.function(cuda.load(PTX), "k")
        for _ in range(50):
            cuda.launch(kernel, 64, 64, 0)
        print("running")
        cuda.synchronize()
        """,
    )
    assert client.stdout is not None
    assert client.stdout.readline() == "running\n"
    workers = {one["worker_pid"] for one in running_on(server.tcp)["sessions"]}
    assert workers
    client.kill()
    client.communicate()
    wait_until(lambda: not workers & set(server.children()))


def test_killed_sessions_by_the_dozen_leave_nothing(server: Server) -> None:
    for _ in range(3):
        crowd = [
            clients.start(
                server.tcp,
                "cuda.open(); cuda.alloc(1 << 20); print('in'); wait_for_line()",
                RGPU_MEMORY="16MiB",
                RGPU_LEASE=f"crowd-{n}",
            )
            for n in range(4)
        ]
        for client in crowd:
            assert client.stdout is not None
            assert client.stdout.readline() == "in\n"
        for client in crowd:
            client.kill()
            client.communicate()
    wait_until(lambda: len(server.children()) <= 2)
