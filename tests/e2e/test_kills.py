"""Many deaths of client, worker or connection at random points leave nothing behind."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from pathlib import Path

import pytest
from helpers import clients
from helpers.counts import count
from helpers.ends import left_files, shared_files
from helpers.proxy import CuttingProxy
from helpers.server import PATIENT, Server
from helpers.waiting import wait_until

KILLS = count("RGPU_TEST_KILLS", 25)
BUSY = r"""
import itertools
from helpers.add_one import PTX
try:
    cuda.open()
    print("open")
    add_one = cuda.function(cuda.load(PTX), "add_one")
    for step in itertools.count():
        address = cuda.alloc(1 << 20)
        cuda.upload(address, bytes(1 << 20))
        for _ in range(50):
            cuda.launch(add_one, 4, 32, address)
        assert cuda.download(address, 4) == (50 * 128).to_bytes(4, "little")
        cuda.free(address)
        print(step)
except CudaError as error:
    print("ended with", error.result)
"""


def strike(random_source: random.Random, server: Server, proxy: CuttingProxy) -> str:
    """Starts a busy client and kills something after a random number of steps; returns what it
    killed.
    """
    what = random_source.choice(["client", "worker", "connection", "client"])
    through = (
        proxy.address
        if what == "connection"
        else server.address(random_source.choice(["unix", "shm", "tcp"]))
    )
    client = clients.start(through, BUSY, RGPU_MEMORY="64MiB")
    assert client.stdout is not None
    try:
        # A client may die before it is open; a worker or connection must be its own by then.
        for _ in range(random_source.randrange(0 if what == "client" else 1, 6)):
            line = client.stdout.readline()
            if not line or line.startswith("ended"):
                _, errors = client.communicate(timeout=60)
                raise AssertionError(f"the client ended by itself: {line}{errors}")
        if what == "client":
            client.kill()
        elif what == "connection":
            proxy.cut(60)
        else:
            workers = server.children()
            for worker in workers:
                # The process may have ended since it was listed.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
            # The server must not give a worker that is dead already to the next client.
            wait_until(lambda: not {*workers} & {*server.children()})
        output, errors = client.communicate(timeout=60)
    finally:
        client.kill()
        client.wait()
    if what != "client":
        assert output.splitlines()[-1] == "ended with 911", (what, output, errors)
    return what


@pytest.mark.slow
@pytest.mark.timeout(300 + 6 * KILLS)
def test_kills_leave_nothing_behind(tmp_path: Path) -> None:
    random_source = random.Random(20)
    shared_before = shared_files()
    config = tmp_path / "rgpu.toml"
    config.write_text(f"{PATIENT}resume_grace_seconds = 0.5\n")
    with Server("--config", str(config)) as server:
        idle = server.sessions()
        struck = []
        for _ in range(KILLS):
            with CuttingProxy(server.tcp) as proxy:
                struck.append(strike(random_source, server, proxy))
        assert {"client", "worker", "connection"} <= set(struck)
        wait_until(lambda: server.sessions() == idle)
        assert server.process is not None
        assert server.process.poll() is None
        code, output, errors = clients.run(
            server.tcp, "cuda.open()\nprint(cuda.memory()[0])", RGPU_MEMORY="2GiB"
        )
        assert code == 0, errors
        assert int(output) > 1 << 30
        workers = server.children()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
    # Others on this machine may use it meanwhile.
    wait_until(lambda: left_files() <= shared_before)
